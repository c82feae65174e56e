"""Distances between rows, and their gradients: the p-norm of every difference.

Differences are taken first and summed after. Eager's euclidean distance of many rows multiplies matrices instead
(|a|^2 + |b|^2 - 2ab), which cancels where rows are close; these do not.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import UNORDERED, Family
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import EVERY_DEVICE

aten = torch.ops.aten
family = Family("distances")
Tensor = torch.Tensor

TAGS = frozenset({"reduction"})
_NORM = (
    Clause("p of 0 counts the components that differ; p of infinity takes the greatest difference.", About.NONFINITE),
    Clause("Rows without components have distance 0.", About.EMPTY),
    Clause("NaN gives NaN.", About.NONFINITE),
)
_SLOPE = ("Where the distance is 0 so is the gradient.",)


def _norm(difference: Tensor, p: float) -> Tensor:
    """The p-norm over the last dimension."""
    size = aten.abs.default(difference)
    if p == 0:
        size = aten.ne.Scalar(difference, 0).to(difference.dtype)
    elif p == math.inf:
        if difference.shape[-1] == 0:
            return aten.full.default(list(difference.shape[:-1]), 0, dtype=difference.dtype, device=difference.device)
        return aten.amax.default(size, [-1])
    elif p == 2:
        size = difference * difference
    elif p != 1:
        size = aten.pow.Tensor_Scalar(size, p)
    total = aten.sum.dim_IntList(size, [-1])
    if p in (0, 1):
        return total
    return aten.sqrt.default(total) if p == 2 else aten.pow.Tensor_Scalar(total, 1 / p)


def _slope(difference: Tensor, dist: Tensor, grad: Tensor, p: float) -> Tensor:
    """The gradient with respect to each difference; ``dist`` and ``grad`` have a last dimension of 1."""
    nothing = aten.full_like.default(difference, 0.0)
    sign = aten.sign.default(difference)
    if p == 0:
        return nothing
    if p == 1:
        return grad * sign
    if p == math.inf:
        return aten.where.self(aten.eq.Tensor(aten.abs.default(difference), dist), grad * sign, nothing)
    flat = aten.eq.Scalar(dist, 0)
    over = aten.where.self(flat, aten.full_like.default(dist, 1.0), dist)
    if p == 2:
        return aten.where.self(flat, nothing, grad * difference / over)
    if p < 1:  # an infinite slope where a component does not differ
        flat = aten.bitwise_or.Tensor(flat, aten.eq.Scalar(difference, 0))
        difference = aten.where.self(flat, aten.full_like.default(difference, 1.0), difference)
    share = aten.pow.Tensor_Scalar(aten.abs.default(difference) / over, p - 1)
    return aten.where.self(flat, nothing, grad * sign * share)


def _difference(x: Tensor, y: Tensor) -> Tensor:
    result: Tensor = aten.unsqueeze.default(accurate(x), -2) - aten.unsqueeze.default(accurate(y), -3)
    return result


@family(
    "_cdist_forward.default",
    tags=TAGS,
    clauses=(*_NORM, Clause("Batch dimensions broadcast.", About.BROADCAST)),
    libraries=EVERY_DEVICE,
)
def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: Any) -> Tensor:
    """The distance of each row of x1 from each row of x2."""
    return _norm(_difference(x1, x2), p).to(x1.dtype)


@family(
    "_cdist_backward.default",
    tags=TAGS,
    clauses=(*_SLOPE, "It is the gradient of cdist with respect to x1."),
    libraries=EVERY_DEVICE,
)
def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of cdist with respect to its first argument, whose batch dimensions are those of both broadcast; but
    where either is empty, its own.
    """
    if any(isinstance(s, int) and s == 0 for s in (*x1.shape, *x2.shape)):
        return aten.full_like.default(x1, 0.0)
    slope = _slope(
        _difference(x1, x2), aten.unsqueeze.default(accurate(cdist), -1), aten.unsqueeze.default(accurate(grad), -1), p
    )
    return aten.sum.dim_IntList(slope, [-2]).to(x1.dtype)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of the rows of each pair, the first being the lesser."""
    rows = aten.arange.default(x.shape[0], device=x.device)
    later = aten.lt.Tensor(aten.unsqueeze.default(rows, 1), rows)
    places = aten.nonzero_static.default(later, size=x.shape[0] * (x.shape[0] - 1) // 2)
    return aten.select.int(places, 1, 0), aten.select.int(places, 1, 1)


def _pairs_apart(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    result: Tensor = aten.index.Tensor(accurate(x), [first]) - aten.index.Tensor(accurate(x), [second])
    return result


@family("_pdist_forward.default", tags=TAGS, clauses=(*_NORM, "Pairs come in lexicographic order."), row_major=True)
def pdist(x: Tensor, p: float = 2) -> Tensor:
    """The distance of each pair of rows."""
    return _norm(_pairs_apart(x, *_pairs(x)), p).to(x.dtype)


@family(
    "_pdist_backward.default",
    tags=TAGS | UNORDERED,
    clauses=(*_SLOPE, "It is the gradient of pdist.", "What goes to one row adds up, in no specified order."),
    row_major=True,
)
def pdist_backward(grad: Tensor, x: Tensor, p: float, pdist: Tensor) -> Tensor:
    """The gradient of pdist."""
    first, second = _pairs(x)
    slope = _slope(
        _pairs_apart(x, first, second),
        aten.unsqueeze.default(accurate(pdist), -1),
        aten.unsqueeze.default(accurate(grad), -1),
        p,
    )
    base = aten.full.default(list(x.shape), 0, dtype=slope.dtype, device=x.device)
    result = aten.index_put.default(aten.index_put.default(base, [first], slope, True), [second], -slope, True)
    return result.to(x.dtype)
