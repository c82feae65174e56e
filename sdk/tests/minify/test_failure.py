"""Results are compared by their bits, whatever their strides."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from keel.minify.failure import same

ONE = torch.arange(4.0).as_strided((1, 1), (3, 2))
"""One element, with strides that do not matter."""


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (ONE, ONE, True),
        (ONE, ONE + 1, False),
        (torch.ones(3, 4).t(), torch.ones(4, 3), True),
        (torch.tensor(float("nan")), torch.tensor(float("nan")), True),
        (torch.tensor(0.0), torch.tensor(-0.0), False),
        (torch.ones(2, 1), torch.ones(1, 2), False),
        (torch.zeros(0, 3), torch.zeros(0, 3), True),
    ],
)
def test_tensors_with_the_same_bits_are_the_same(a: Tensor, b: Tensor, expected: bool) -> None:
    assert same(a, b) == expected
