"""Scatters: the result is a copy of the first operand, to which updates are applied at indices that are data.

If several updates have the same index, sums are in any order and any one of the plain writes stays, as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from keel.loops.builder import Builder, Number, Operand, Rule, Value
from keel.loops.index import Index
from keel.loops.ir import StoreMode

from .indexing import indexed
from .rule_arguments import canonical_dim, literal, not_lowerable, store

aten = torch.ops.aten

MODES: Mapping[str, StoreMode] = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def along(b: Builder, x: Operand, dim: int, index: Operand) -> list[Index]:
    """Declares one update per element of ``index``, and returns its coordinates in ``x``."""
    at = list(b.updates_over(index.type.shape))
    if not x.type.rank:
        return []
    dim = canonical_dim(dim, x.type.rank)
    at = at or [Index()]
    place = b.as_index(b.read(index, at if index.type.rank else ()), x.type.shape[dim])
    return [*at[:dim], place, *at[dim + 1 :]]


def _source(b: Builder, x: Operand, index: Operand, source: Operand | Number) -> Value:
    """The update's value: the element of ``source`` at the coordinates of the index."""
    if isinstance(source, Operand):
        at = b.at if index.type.rank or not source.type.rank else [Index()] * source.type.rank
        return store(b, source[at])
    return store(b, literal(b, source, x.type.dtype))


def scatter(
    b: Builder, x: Operand, dim: int, index: Operand, source: Operand | Number, *, reduce: str | None = None
) -> None:
    at = along(b, x, dim, index)
    b.scatter(x, at, _source(b, x, index, source), "write" if reduce is None else _mode(b, x, reduce))


def scatter_add(b: Builder, x: Operand, dim: int, index: Operand, source: Operand) -> None:
    scatter(b, x, dim, index, source, reduce="add")


def scatter_reduce(
    b: Builder, x: Operand, dim: int, index: Operand, source: Operand, reduce: str, *, include_self: bool = True
) -> None:
    if not include_self:
        not_lowerable(b, "ignores the old values at its indices (include_self=False).")
    scatter(b, x, dim, index, source, reduce=reduce)


def _mode(b: Builder, x: Operand, reduce: str) -> StoreMode:
    if reduce not in MODES:
        not_lowerable(b, f"combines with {reduce}, which takes more than one pass.")
    if x.type.dtype == torch.bool:
        not_lowerable(b, f"combines bools with {reduce}.")
    return MODES[reduce]


def index_put(
    b: Builder, x: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool = False
) -> Value | None:
    """One number under a mask, as in ``x[mask] = 0``, is a choice for each element: their count is not needed."""
    if values.type.numel == 1 and not accumulate and (inside := only_mask(b, indices)) is not None:
        number = b.math(values[[Index()] * values.type.rank])
        return store(b, b.where(inside, number, b.math(x[b.at])))
    shape = put_shape(x, indices)
    at = indexed(b, x.type.shape, indices, b.updates_over(shape))
    mode: StoreMode = _mode(b, x, "add") if accumulate else "write"
    b.scatter(x, at, store(b, b.broadcast(values)), mode)
    return None


def only_mask(b: Builder, indices: Sequence[Operand | None]) -> Value | None:
    """The element of the mask that is the only index, for an element of the result. None for other indices."""
    match [(dim, index) for dim, index in enumerate(indices) if index is not None]:
        case [(dim, mask)] if mask.type.dtype == torch.bool:
            return mask[b.at[dim : dim + mask.type.rank]]
    return None


def put_shape(x: Operand, indices: Sequence[Operand | None]) -> list[Any]:
    """The shape of ``x[indices]``."""
    indexed_dims = [n for n, i in enumerate(indices) if i is not None]
    chosen = list(broadcast_shape([i.type.shape for i in indices if i is not None]))
    rest = [s for d, s in enumerate(x.type.shape) if d >= len(indices) or indices[d] is None]
    adjacent = indexed_dims and indexed_dims == list(range(indexed_dims[0], indexed_dims[-1] + 1))
    front = indexed_dims[0] if adjacent else 0
    return [*rest[:front], *chosen, *rest[front:]]


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    rank = max((len(s) for s in shapes), default=0)
    out: list[Any] = [1] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            out[d] = n if n != 1 else out[d]
    return out


def index_add(b: Builder, x: Operand, dim: int, index: Operand, source: Operand, *, alpha: Number = 1) -> None:
    if x.type.dtype == torch.bool:
        not_lowerable(b, "adds bools.")
    at, value = _rows(b, x, dim, index, source)
    value = b.math(value)
    b.scatter(x, at, store(b, value if alpha == 1 else value * literal(b, alpha, x.type.dtype)), "add")


def index_copy(b: Builder, x: Operand, dim: int, index: Operand, source: Operand) -> None:
    at, value = _rows(b, x, dim, index, source)
    b.scatter(x, at, store(b, value), "write")


def index_fill(b: Builder, x: Operand, dim: int, index: Operand, value: Operand | Number) -> None:
    dim = canonical_dim(dim, x.type.rank)
    count = index.type.numel
    at = list(b.updates_over([count if d == dim else n for d, n in enumerate(x.type.shape)]))
    number = b.broadcast(value, ()) if isinstance(value, Operand) else literal(b, value, x.type.dtype)
    b.scatter(x, _row(b, x, dim, index, at), store(b, number), "write")


def _rows(b: Builder, x: Operand, dim: int, index: Operand, source: Operand) -> tuple[list[Index], Value]:
    dim = canonical_dim(dim, x.type.rank)
    at = list(b.updates_over(source.type.shape))
    return _row(b, x, dim, index, at), source[at]


def _row(b: Builder, x: Operand, dim: int, index: Operand, at: list[Index]) -> list[Index]:
    if not x.type.rank:
        return []
    place = b.as_index(index[[at[dim]] if index.type.rank else ()], x.type.shape[dim], wrap=True)
    return [*at[:dim], place, *at[dim + 1 :]]


RULES: Mapping[Any, Rule] = {
    aten.scatter.src: scatter,
    aten.scatter.value: scatter,
    aten.scatter.reduce: scatter,
    aten.scatter.value_reduce: scatter,
    aten.scatter_add.default: scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
}
