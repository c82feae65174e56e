"""What is computed in a kernel, and what is not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from keel.errors import BadIndex
from keel.plugin import Limits

pytestmark = pytest.mark.slow


def scaled_pool(x, scale):
    return F.max_pool2d(F.relu(x * scale.rsqrt()[:, None, None]), 3, 2, 1)


def test_a_window_is_masked_once(scheduled, text, golden):
    """The channel's factor stays outside the window, and positions that nobody reads are not looked for."""
    written = text(scheduled(scaled_pool, torch.randn(2, 3, 9, 8), torch.rand(3) + 1))
    assert "argmax" not in written
    golden(written)


def padded(x, y):
    return F.pad(F.pad(x, (1, 1)).cos() * y, (2, 0)) + 1


def test_what_is_padded_is_zero_at_each_step(scheduled):
    scheduled(padded, torch.randn(3, 4), torch.randn(6))
    scheduled(padded, torch.randn(1), torch.randn(3))


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.bfloat16])
def test_values_alone_of_an_extreme_with_positions(scheduled, text, reduce, dtype):
    x = (torch.randn(5, 7) * 3).to(dtype)
    if dtype.is_floating_point:
        x[1, 3] = float("nan")
    written = text(scheduled(lambda x: getattr(x, reduce)(1).values, x))
    assert f"arg{reduce}" not in written
    both = text(scheduled(lambda x: tuple(getattr(x, reduce)(1)), x))
    assert f"arg{reduce}" in both


def row_by_number(x, i):
    """A row taken by its number from a tensor that a fold makes, of one row."""
    best = x.amin(1)
    row = best.amax(0, keepdim=True)[i]
    return row.amax(0, keepdim=True), row.amax(1, keepdim=True), best


def test_a_fold_of_one_place_is_read_by_number(scheduled):
    x = torch.randn(1, 9, 16)
    scheduled(row_by_number, x, torch.tensor([0]))
    with pytest.raises(BadIndex, match="index 1 is out of bounds for a dimension of size 1"):
        scheduled(row_by_number, x, torch.tensor([1]))


@pytest.mark.parametrize("parallel", [1, 64])
def test_a_place_whose_number_changes_nothing_is_checked(scheduled, parallel):
    """Split or not: what is read is the one place in any case."""
    numbers = torch.zeros(4096, dtype=torch.int64)

    def total(x, i):
        return (x.expand(1)[i] * 0.5).sum()

    scheduled(total, torch.randn(1), numbers, limits=Limits(parallel=parallel))
    numbers[77] = 1
    with pytest.raises(BadIndex, match="index 1 is out of bounds for a dimension of size 1"):
        scheduled(total, torch.randn(1), numbers, limits=Limits(parallel=parallel))
