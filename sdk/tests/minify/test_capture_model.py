"""A model is captured whatever its class can do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from keel.minify.capture_model import _difference, _run


class Unsized:
    """A compiled module has a length, which it refuses if its module has none."""

    def __call__(self, x: Tensor) -> Any:
        return x + 1

    def __len__(self) -> int:
        raise TypeError("It does not support len().")


def test_a_model_without_a_length_runs() -> None:
    (result,) = _run(torch.neg, (torch.zeros(2),), {}, False, Unsized())
    assert result.tolist() == [1.0, 1.0]


X = torch.tensor([1.0, -2.0, float("inf")])
NOISE = torch.tensor([1e-9, -2e-9])


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([X, NOISE], ""),
        ([X, -NOISE], ""),
        ([X * 1.1, NOISE], "Result 0 of the captured graphs is off by 0.1 "),
        ([X, NOISE + 0.1], "Result 1"),
        ([X, NOISE * float("nan")], "Result 1"),
        ([X.double(), NOISE], "Result 0 of the captured graphs is torch.float64"),
    ],
)
def test_graphs_that_differ_by_rounding_errors_are_right(result: list[Tensor], words: str) -> None:
    said = _difference([X, NOISE], result)
    assert said.startswith(words) and bool(said) == bool(words)
