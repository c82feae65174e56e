"""Reductions over dimensions, and scans along one.

16-bit floats are summed in float32 and rounded once.  Sums of integers and bools are int64, as PyTorch's are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from keel.loops.builder import Builder, Operand, Rule, Value
from keel.loops.index import Index, flatten
from keel.types import contiguous_strides, product

from .rule_arguments import canonical_dim, canonical_dims, not_lowerable, out_dtype, store

aten = torch.ops.aten

Dims = int | Sequence[int] | None


def over(b: Builder, x: Operand, dims: Sequence[int], keepdim: bool) -> list[Index]:
    """Declares the axes of ``dims`` as reduced, and returns the coordinates of the current element of ``x``."""
    folded = iter(b.fold_over(x.type.shape[d] for d in dims) if dims else ())
    remaining = iter(i for d, i in enumerate(b.at) if not keepdim or d not in dims)
    return [next(folded) if d in dims else next(remaining) for d in range(x.type.rank)]


def folded(b: Builder, monoid: str, value: Value, dims: Sequence[int]) -> Value:
    """The reduction over ``dims``; ``value`` itself if there are no ``dims``."""
    return b.reduce(monoid, value) if dims else value


def some(b: Builder, x: Operand, dims: Sequence[int]) -> None:
    """Refuses a maximum or minimum over an empty dimension, which is an error in eager."""
    if any(x.type.shape[d] == 0 for d in dims):
        not_lowerable(b, "takes the maximum or minimum of an empty dimension.")


def converted(b: Builder, x: Operand, at: Sequence[Index]) -> Value:
    """The element converted to the result's dtype and ready for arithmetic, as sums and products need it."""
    return b.math(b.cast(x[at], out_dtype(b)))


def total(monoid: str) -> Rule:
    """sum or prod"""

    def rule(
        b: Builder, x: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> Value:
        dims = canonical_dims(dim, x.type.rank)
        return store(b, folded(b, monoid, converted(b, x, over(b, x, dims, keepdim)), dims))

    return rule


def mean(b: Builder, x: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    dims = canonical_dims(dim, x.type.rank)
    value = folded(b, "sum", converted(b, x, over(b, x, dims, keepdim)), dims)
    return store(b, value / b.number(product(x.type.shape[d] for d in dims), value.dtype)) if dims else store(b, value)


def extreme(monoid: str) -> Rule:
    """max or min over dimensions. On bools these are ``any`` and ``all``."""

    def rule(b: Builder, x: Operand, dim: Dims = None, keepdim: bool = False) -> Value:
        dims = canonical_dims(dim, x.type.rank)
        some(b, x, dims)
        value = b.math(x[over(b, x, dims, keepdim)])
        name = {"max": "any", "min": "all"}[monoid] if value.dtype == torch.bool else monoid
        return store(b, folded(b, name, value, dims))

    return rule


def truth(monoid: str) -> Rule:
    """any or all of the elements that are not zero. The result for uint8 is uint8."""

    def rule(b: Builder, x: Operand, dim: Dims = None, keepdim: bool = False) -> Value:
        # Only for ``any.dims``, an empty list means no dimension.
        named_none = isinstance(dim, list | tuple) and not dim
        dims = () if named_none and len(b.shape) == x.type.rank and not keepdim else canonical_dims(dim, x.type.rank)
        if named_none and keepdim and b.shape == x.type.shape:
            dims = ()
        return store(b, folded(b, monoid, b.cast(x[over(b, x, dims, keepdim)], torch.bool), dims))

    return rule


def position_of_extreme(monoid: str) -> Rule:
    """argmax or argmin: the position of the first extreme, or of the first NaN. Without a dimension, positions count
    through the flattened tensor.
    """

    def rule(b: Builder, x: Operand, dim: int | None = None, keepdim: bool = False) -> Value:
        dims = canonical_dims(dim, x.type.rank)
        if not dims:
            return b.const(0, torch.int64)
        some(b, x, dims)
        at = over(b, x, dims, keepdim)
        place = flatten([at[d] for d in dims], contiguous_strides(tuple(x.type.shape[d] for d in dims)))
        return b.reduce_all(monoid, _ordered(b, x[at]), b.position(place))[1]

    return rule


def extreme_with_position(monoid: str) -> Rule:
    """max or min over one dimension, with its position."""

    def rule(b: Builder, x: Operand, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if not x.type.rank:
            return x[()], b.const(0, torch.int64)
        dims = (canonical_dim(dim, x.type.rank),)
        some(b, x, dims)
        at = over(b, x, dims, keepdim)
        best, place = b.reduce_all(monoid, _ordered(b, x[at]), b.position(at[dims[0]]))
        return store(b, best), place

    return rule


def _ordered(b: Builder, value: Value) -> Value:
    return b.cast(value, torch.int32) if value.dtype == torch.bool else b.math(value)


def running(monoid: str) -> Rule:
    """cumsum or cumprod. On CPU, float32 is accumulated in float64, as in eager: long rows keep their digits."""

    def rule(b: Builder, x: Operand, dim: int, *, dtype: torch.dtype | None = None) -> Value:
        value = converted(b, x, b.at)
        if not x.type.rank:
            return store(b, value)
        if value.dtype == torch.float32 and x.type.device.type == "cpu":
            value = b.cast(value, torch.float64)
        return store(b, b.scan(monoid, canonical_dim(dim, x.type.rank), value)[0])

    return rule


RULES: Mapping[Any, Rule] = {
    aten.sum.default: total("sum"),
    aten.sum.dim_IntList: total("sum"),
    aten.prod.default: total("prod"),
    aten.prod.dim_int: total("prod"),
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.amax.default: extreme("max"),
    aten.amin.default: extreme("min"),
    aten.max.default: extreme("max"),
    aten.min.default: extreme("min"),
    **{
        getattr(packet, name): truth(monoid)
        for packet, monoid in ((aten.any, "any"), (aten.all, "all"))
        for name in ("default", "dim", "dims")
    },
    aten.argmax.default: position_of_extreme("argmax"),
    aten.argmin.default: position_of_extreme("argmin"),
    aten.max.dim: extreme_with_position("argmax"),
    aten.min.dim: extreme_with_position("argmin"),
    aten.cumsum.default: running("sum"),
    aten.cumprod.default: running("prod"),
}
