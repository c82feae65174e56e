"""The dimensions of a tensor in the order of its memory, so that a transposed tensor is read without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor


def memory_order(x: Tensor) -> list[int]:
    """The dimensions from the one with the largest stride to the one with the smallest. Those along which elements
    repeat come first.
    """
    strides = x.stride()
    return sorted(range(x.dim()), key=lambda d: -strides[d] if strides[d] else -math.inf)


def in_shape_order(permuted: Tensor, order: Sequence[int]) -> Tensor:
    """The tensor of which ``permuted`` has the dimensions in ``order``."""
    return permuted.permute(sorted(range(len(order)), key=order.__getitem__))
