"""Reading a dimension at several places per element of the result: what pooling and resampling are made of.

Places are integers [out, taps], known from sizes alone, so that one gather and one fold over the taps do the work, and
fuse. The places of a gradient are those of the results that an element had a part in.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def count(n: Any, like: Tensor) -> Tensor:
    """0 to n - 1."""
    return aten.arange.default(n, device=like.device)


def floordiv(a: Tensor, b: Any) -> Tensor:
    """Rounded down, of integers."""
    return aten.div.Scalar_mode(a, b, rounding_mode="floor")


def along(x: Tensor, dim: int, rank: int) -> Tensor:
    """``x``'s dimensions placed at ``dim`` and after it, among ``rank`` dimensions."""
    return aten.view.default(x, [1] * dim + list(x.shape) + [1] * (rank - dim - x.dim()))


def read(x: Tensor, dim: int, places: Tensor) -> Tensor:
    """``x`` with its dimension ``dim`` read at ``places``, whose dimensions take its place."""
    return aten.index.Tensor(x, [None] * dim + [places])


def adaptive(size: Any, outs: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    """Where the windows of an adaptive pooling begin and end: floor(o * size / outs), ceil((o + 1) * size / outs)."""
    o = count(outs, like)
    return floordiv(o * size, outs), floordiv((o + 1) * size + (outs - 1), outs)


def longest(size: Any, outs: Any) -> Any:
    """No adaptive window is longer."""
    if isinstance(size, int) and isinstance(outs, int):
        return max((-(-(o + 1) * size // outs) - o * size // outs for o in range(outs)), default=1)
    return (size + outs - 1) // outs + 1
