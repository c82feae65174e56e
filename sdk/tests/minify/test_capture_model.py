"""A model is captured whatever its class can do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from keel.minify.capture_model import _run


class Unsized:
    """A compiled module has a length, which it refuses if its module has none."""

    def __call__(self, x: Tensor) -> Any:
        return x + 1

    def __len__(self) -> int:
        raise TypeError("It does not support len().")


def test_a_model_without_a_length_runs() -> None:
    (result,) = _run(torch.neg, (torch.zeros(2),), {}, False, Unsized())
    assert result.tolist() == [1.0, 1.0]
