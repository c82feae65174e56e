"""Norms and products of vectors and matrices."""

from __future__ import annotations

from math import inf
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Family
from keel.spec.ops.statistics import accurate, all_dims

aten = torch.ops.aten
family = Family("linalg composites", profile="linalg")

Tensor = torch.Tensor


@family(
    "linalg_vector_norm",
    profile="core",
    clauses=(
        Clause(
            "The norm of order p is the sum of |x|^p over dim to the power of 1 / p; of order inf it is the largest "
            "|x|, of -inf the least, of 0 the number of elements that are not 0.",
            About.NONFINITE,
        ),
        Clause("NaN gives NaN, but for order 0, where it counts.", About.NONFINITE),
        Clause("Over no elements it is 0; orders below 0 and inf are then an error.", About.EMPTY),
        Clause("It is summed in dtype if that is given, and a 16-bit float in float32.", About.HALF | About.FLOAT32),
        Clause("Overflow and underflow of |x|^p are not avoided.", About.NONFINITE),
    ),
)
def linalg_vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The norm of the elements along ``dim``; all by default."""
    converted = x if dtype is None else x.to(dtype)
    result = converted.abs().dtype if converted.is_complex() else converted.dtype
    over = all_dims(x, [dim] if isinstance(dim, int) else dim)
    # The absolute value of a 16-bit float is exact, and rounding it to 16 bits would take longer than the rest.
    size = aten.abs.default(converted if converted.is_complex() else accurate(converted))
    return _norm(accurate(size), float(ord), over, keepdim).to(result)


def _norm(size: Tensor, order: float, over: list[int], keepdim: bool) -> Tensor:
    if order == inf:
        return aten.amax.default(size, over, keepdim)
    if order == -inf:
        return aten.amin.default(size, over, keepdim)
    total = aten.sum.dim_IntList(_power(size, order), over, keepdim)
    if order in (0.0, 1.0):
        return total
    return aten.sqrt.default(total) if order == 2.0 else aten.pow.Tensor_Scalar(total, 1.0 / order)


def _power(size: Tensor, order: float) -> Tensor:
    match order:
        case 0.0:
            return aten.ne.Scalar(size, 0).to(size.dtype)
        case 1.0:
            return size
        case 2.0:
            return size * size
    return aten.pow.Tensor_Scalar(size, order)


@family(
    "linalg__powsum",
    profile="core",
    clauses=(
        "The result is the sum of |x|^p over dim, the norm before its root is taken.",
        Clause("For p = 0 each element counts as 1, 0 and NaN too.", About.NONFINITE),
    ),
)
def linalg_powsum(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The sum of powers along ``dim``; all by default."""
    converted = x if dtype is None else x.to(dtype)
    result = converted.abs().dtype if converted.is_complex() else converted.dtype
    over = all_dims(x, [dim] if isinstance(dim, int) else dim)
    size = accurate(aten.abs.default(converted))
    powers = aten.full_like.default(size, 1.0) if ord == 0 else _power(size, float(ord))
    return aten.sum.dim_IntList(powers, over, keepdim).to(result)


@family(
    "linalg_cross",
    profile="core",
    clauses=(
        "Element i along dim is a[i + 1] b[i + 2] - a[i + 2] b[i + 1], indices modulo 3.",
        Clause("The operands are broadcast; both have 3 elements along dim.", About.BROADCAST),
    ),
)
def linalg_cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """The product of vectors of three elements that is orthogonal to both."""
    a, b = torch.broadcast_tensors(a, b)
    at = dim % a.dim()

    def turned(x: Tensor, by: int) -> Tensor:
        return aten.cat.default([aten.slice.Tensor(x, at, by, 3), aten.slice.Tensor(x, at, 0, by)], at)

    return turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)
