"""Legal ways to compute what leaves the order open: other orders, blocks, FMA, more precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor


def _pairs(x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return x.numpy(), y.numpy()


def sequential(x: Tensor, y: Tensor) -> float:
    a, b = _pairs(x, y)
    total = np.float32(0)
    for p, q in zip(a, b, strict=True):
        total = np.float32(total + np.float32(p * q))
    return float(total)


def backwards(x: Tensor, y: Tensor) -> float:
    return sequential(x.flip(0), y.flip(0))


def pairwise(x: Tensor, y: Tensor) -> float:
    terms = [np.float32(p * q) for p, q in zip(*_pairs(x, y), strict=True)]
    while len(terms) > 1:
        terms = [np.float32(sum(terms[i : i + 2], np.float32(0))) for i in range(0, len(terms), 2)]
    return float(terms[0]) if terms else 0.0


def blocked(x: Tensor, y: Tensor, size: int = 8) -> float:
    parts = [np.float32(sequential(x[i : i + size], y[i : i + size])) for i in range(0, len(x), size)]
    total = np.float32(0)
    for p in parts:
        total = np.float32(total + p)
    return float(total)


def fused(x: Tensor, y: Tensor) -> float:
    """FMA: the product of two float32 is exact in float64, and is added before one rounding."""
    total = np.float32(0)
    for p, q in zip(*_pairs(x, y), strict=True):
        total = np.float32(np.float64(p) * np.float64(q) + np.float64(total))
    return float(total)


def widely(x: Tensor, y: Tensor) -> float:
    return float(np.float32((x.double() * y.double()).sum().item()))


WAYS: Mapping[str, Callable[[Tensor, Tensor], float]] = {
    f.__name__: f for f in (sequential, backwards, pairwise, blocked, fused, widely)
}
