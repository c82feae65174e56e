"""Integers lie at the edges of bins: which of the two has one is open, that one of them has it is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.judge import judge

CASE = Case("histc", "", "op", "core", "aten.histc.default")
X = torch.tensor([5.0, -4.0, 7.0, -5.0, -2.0, 12.0])


def status(result: Tensor, x: Tensor = X) -> str:
    return judge(CASE, Inputs((x, 100, -10, 10)), [result]).status


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_an_element_at_an_edge_counts_once(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    right = torch.histc(x.float(), 100, -10, 10).to(dtype)
    assert status(right, x) == "pass"
    assert status(right.roll(-1), x) == "pass"  # all of them on the other side of their edges
    for wrong in (torch.zeros_like(right), 2 * right, right + (torch.arange(100) == 99), right.roll(-2)):
        assert status(wrong, x) == "fail"


def test_elements_of_equal_bounds_all_count() -> None:
    result = torch.histc(X, 4, 0, 0)
    assert judge(CASE, Inputs((X, 4, 0, 0)), [result]).status == "pass"
    short = torch.where(torch.arange(4) == 3, result - 1, result)
    assert judge(CASE, Inputs((X, 4, 0, 0)), [short]).status == "fail"
