"""How a tensor lies in memory: classes of strides, with poison wherever no element is.

``place`` gives a tensor of equal values in another layout; its strides follow from sizes and class alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

LAYOUTS = (
    "contiguous",
    "transposed",
    "reversed",
    "channels_last",
    "expanded",
    "expanded_last",
    "offset",
    "gapped",
    "rows_apart",
    "odd_ones",
)
OFFSET = 3
"""Elements before the first, of the class ``offset``: no vector load is aligned then."""
GAP = 2
ALIGNED = 64
"""Elements before the first, of a transposed or expanded one: none is read right that is read from the start, and
vector loads are aligned.
"""


def fits(layout: str, shape: Sequence[int]) -> bool:
    """Whether sizes can lie so, other than in row-major order."""
    rank, empty = len(shape), 0 in shape
    match layout:
        case "contiguous":
            return True
        case "offset":
            return not empty
        case "transposed":
            return rank >= 2 and min(shape[-2:]) > 1
        case "reversed":
            return rank >= 3 and not empty and sum(n > 1 for n in shape) >= 2
        case "channels_last":
            return rank in (4, 5) and not empty and shape[1] > 1
        case "expanded":
            return rank >= 1 and not empty and shape[0] > 1
        case "expanded_last":
            return rank >= 2 and not empty and shape[-1] > 1
        case "gapped":
            return rank >= 1 and not empty and shape[-1] > 1
        case "rows_apart":
            return rank >= 2 and not empty and shape[-2] > 1
        case "odd_ones":
            return 1 in shape and not empty
    raise ValueError(f"Unknown layout: {layout}.")


def with_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    """``x`` in a layout that fits.  In the expanded ones elements are those of the first along that dimension."""
    if layout == "contiguous":
        return x.contiguous()
    if layout in ("expanded", "expanded_last"):
        dim = 0 if layout == "expanded" else -1
        once = x.narrow(dim, 0, 1)
        return with_strides(once, _dense(once.shape, range(x.dim())), ALIGNED).expand(x.shape)
    strides, offset = _strides(layout, x.shape)
    return with_strides(x, strides, offset)


def with_strides(x: torch.Tensor, strides: Sequence[int], offset: int = 0) -> torch.Tensor:
    """``x`` with these strides in memory of its own; what repeats has the value of its first."""
    if x.numel() == 0:
        return torch.empty_strided(x.shape, strides, dtype=x.dtype)
    once = x[tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for n, s in zip(x.shape, strides, strict=True))]
    extent = 1 + sum((n - 1) * s for n, s in zip(once.shape, strides, strict=True))
    memory = poison(offset + extent + offset, x.dtype)
    memory.as_strided(once.shape, strides, offset).copy_(once)
    return memory.as_strided(x.shape, strides, offset)


def poison(n: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory whose every element shows where it is read: NaN, or bits that no result is likely to have."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full((n,), float("nan"), dtype=torch.float32).to(dtype)
    if dtype == torch.bool:
        return torch.ones(n, dtype=dtype)
    return torch.full((n * dtype.itemsize,), 0xA5, dtype=torch.uint8).view(dtype)


def _strides(layout: str, shape: Sequence[int]) -> tuple[list[int], int]:
    rank = len(shape)
    match layout:
        case "transposed":
            return _dense(shape, [*range(rank - 2), rank - 1, rank - 2]), ALIGNED
        case "reversed":
            return _dense(shape, range(rank - 1, -1, -1)), OFFSET
        case "channels_last":
            return _dense(shape, [0, *range(2, rank), 1]), 0
        case "offset":
            return _dense(shape, range(rank)), OFFSET
        case "gapped":
            return [GAP * s for s in _dense(shape, range(rank))], 1
        case "rows_apart":
            padded = [*shape[:-1], shape[-1] + OFFSET]
            return _dense(padded, range(rank)), OFFSET
        case "odd_ones":
            dense = _dense(shape, range(rank))
            return [s if n != 1 else s + 5 for n, s in zip(shape, dense, strict=True)], 0
    raise ValueError(f"Unknown layout: {layout}.")


def _dense(shape: Sequence[int], order: Sequence[int]) -> list[int]:
    """Strides of elements that stand one after the other, slowest dimension first in ``order``."""
    strides, step = [0] * len(shape), 1
    for d in reversed(list(order)):
        strides[d] = step
        step *= max(shape[d], 1)
    return strides
