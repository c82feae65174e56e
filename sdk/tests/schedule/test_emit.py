"""What is computed in a kernel, and what is not."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


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
