"""Every clause of a member has cases or a reason why it has none."""

from __future__ import annotations

import pytest

from keel.opset import MEMBERS
from keel_conformance.cases.clause_coverage import required_features, untested
from keel_conformance.cases.clause_matrix import matrix
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.invalid_calls import UNBROKEN
from keel_conformance.cases.plan import plan

SOME = tuple(name for i, (name, op) in enumerate(MEMBERS.items()) if i % 23 == 5 and op.targets)
"""Some of the members that this PyTorch has."""


def test_every_clause_has_cases_or_a_reason_and_none_has_both() -> None:
    rows = matrix(plan(profile="strict", ops=SOME), SOME)
    assert len(rows) == sum(len(MEMBERS[n].clauses) for n in SOME) > 40
    assert not [r for r in rows if not r.cases and not r.reason]
    assert not [r for r in rows if r.cases and r.clause in untested()]


def test_reasons_are_of_clauses_that_there_are() -> None:
    for clause, reason in untested().items():
        name, number = clause.rsplit(".", 1)
        assert number in required_features(name) and reason.endswith("."), clause


@pytest.mark.parametrize(
    ("clause", "features"),
    [
        ("exp.C1", {"special"}),
        ("exp.C5", {"whole"}),
        ("add.C2", {"integer", "special"}),
        ("sum.C2", {"given keepdim"}),
        ("sum.C8", {"half"}),
        ("sum.C3", {"empty"}),
        ("cat.C2", {"mixed"}),
        ("permute.C1", set()),
    ],
)
def test_sentences_ask_for_what_they_speak_of(clause: str, features: set[str]) -> None:
    name, number = clause.split(".")
    assert required_features(name)[number] == features, MEMBERS[name].clauses[int(number[1:]) - 1]


def test_every_precondition_is_broken_alone_or_there_is_a_reason() -> None:
    for name, op in MEMBERS.items():
        domain = domain_of(name) if op.requires else None
        broken = {n.violates for n in domain.invalid_calls} if domain is not None else set()
        for r in op.requires:
            assert domain is None or r.sentence in broken or r.id in UNBROKEN, (name, r.sentence)
