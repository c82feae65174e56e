"""Noise of a given size on values of any layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from keel.error_budgets.rounding_noise import MANY, random_like, with_noise


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(2 * MANY + 3, dtype=torch.float64),
        torch.ones(MANY, 2, dtype=torch.float64).t(),
        torch.ones(2, 3, 5, 7, dtype=torch.complex128).to(memory_format=torch.channels_last),
        torch.ones(7, 9, dtype=torch.float64)[::2, 1:],
        torch.ones((), dtype=torch.float64),
    ],
    ids=["long", "transposed", "channels-last", "sliced", "0-d"],
)
def test_noise_has_its_size_and_keeps_the_layout(x: Tensor) -> None:
    noisy = with_noise(x, 0.5, 3)
    distance = (noisy - x).abs()
    assert 0 < float(distance.max()) <= 0.5
    assert noisy.shape == x.shape
    assert sorted(range(x.dim()), key=x.stride) == sorted(range(x.dim()), key=noisy.stride)
    assert torch.equal(noisy, with_noise(x, 0.5, 3)) and not torch.equal(noisy, with_noise(x, 0.5, 4))


def test_rows_of_a_matrix_get_different_noise() -> None:
    rows = random_like(torch.empty(256, 1024), 0)
    assert len({tuple(row[:4].tolist()) for row in rows}) == 256
