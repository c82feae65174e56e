"""Whether a defect shows is judged beside the largest result."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from keel_bench.debugging.model_run import are_off

X = torch.tensor([1.0, -2.0, 3.0])
NOISE = torch.tensor([1e-9, -2e-9])


@pytest.mark.parametrize(
    ("result", "is_wrong"),
    [
        ([X, NOISE], False),
        ([X, -NOISE], False),
        ([X * 1.01, NOISE], True),
        ([X, NOISE + 0.01], True),
        ([X, NOISE * float("nan")], True),
        ([X.double(), NOISE], True),
        ([X, NOISE[:1]], True),
    ],
)
def test_rounding_errors_are_not_off(result: list[Tensor], is_wrong: bool) -> None:
    assert are_off([X, NOISE], result) == is_wrong


def test_integers_are_off_by_their_own_size() -> None:
    assert are_off([1e3 * X, torch.tensor([1])], [1e3 * X, torch.tensor([2])])
