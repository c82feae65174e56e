"""Facts of an operator as a function of numbers: which contradict each other."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import MEMBERS
from keel.spec.numerics import Numerics
from keel.spec.op import Op


@pytest.mark.parametrize("facts", [
    {"steps": True, "lipschitz": 1.0}, {"lipschitz": 0.0}, {"lipschitz": -1.0}, {"series": True, "rounded_once": True},
    {"identities": (-1.0, 1.0)}, {"identities": (float("nan"), None)}])
def test_facts_that_contradict_each_other_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"function|Lipschitz|series|Identities"):
        Numerics(**facts)


def _applied(op: Op, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = op.targets[0](x, y)
    return result


TWO_OPERANDS = [op for op in MEMBERS.values() if op.numerics.identities]


@pytest.mark.parametrize("op", TWO_OPERANDS, ids=lambda op: op.name)
def test_identities_and_what_needs_no_rounding_hold_for_eager(op: Op) -> None:
    values = torch.tensor([-7.3, -0.25, 0.0, 1.0, 2.5, 1e30], dtype=torch.float64)
    first, second = op.numerics.identities
    for number in (-1.0, 1.0):
        if first is not None:
            assert _applied(op, torch.full_like(values, number * first), values).abs().equal(values.abs())
        if second is not None:
            assert _applied(op, values, torch.full_like(values, number * second)).abs().equal(values.abs())
    if op.numerics.keeps_dyadics:
        x, y = torch.meshgrid(*2 * [torch.arange(-40, 41) / 16], indexing="ij")
        assert _applied(op, x, y).double().equal(_applied(op, x.double(), y.double()))
    if op.numerics.zero_absorbs:
        zeros = torch.zeros_like(values)
        assert not (_applied(op, zeros, values).any() or _applied(op, values, zeros).any())
