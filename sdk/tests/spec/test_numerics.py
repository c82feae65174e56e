"""Facts of an operator as a function of numbers: which contradict each other."""
from __future__ import annotations

from typing import Any

import pytest

from keel.spec.numerics import Numerics


@pytest.mark.parametrize("facts", [
    {"steps": True, "lipschitz": 1.0}, {"lipschitz": 0.0}, {"lipschitz": -1.0}, {"series": True, "rounded_once": True}])
def test_facts_that_contradict_each_other_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"function|Lipschitz|series"):
        Numerics(**facts)
