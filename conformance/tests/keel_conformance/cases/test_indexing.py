"""Indices outside: negative cases of the members that say they are an error."""

from __future__ import annotations

import pytest

from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.values import SeededValues


@pytest.mark.parametrize("name", ["index", "index_put"])
def test_eager_refuses_an_index_outside(name):
    found = [n for n in domain_of(name).invalid_calls if n.name.startswith("an index")]
    assert [n.name for n in found] == ["an index past", "an index below"]
    for negative in found:
        assert negative.violates in [c.text for c in domain_of(name).op.clauses]
        inputs = negative.make(SeededValues("", 0))
        target = next(t for t in domain_of(name).op.targets if str(t) == negative.overload)
        with pytest.raises(IndexError, match="out of bounds"):
            target(*inputs.args, **inputs.kwargs)


def test_where_an_implementation_may_leave_it_unnoticed_there_is_no_such_case():
    assert not [n for n in domain_of("gather").invalid_calls if n.name.startswith("an index")]
