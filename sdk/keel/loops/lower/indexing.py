"""Gathers: indices are the elements of integer tensors.

Eager raises an error for an index out of range. A kernel checks each index, and its caller raises after the kernel has
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from keel.loops.builder import Builder, Number, Operand, Rule, Value
from keel.loops.index import Index, unflatten
from keel.loops.symbolic_sizes import is_positive
from keel.types import Dim

from .rule_arguments import canonical_dim, literal, not_lowerable, out_dtype, store

aten = torch.ops.aten


def gather(b: Builder, x: Operand, dim: int, index: Operand, *, sparse_grad: bool = False) -> Value:
    if not x.type.rank:
        return x[()]
    if index.type.rank not in (x.type.rank, 0):  # an empty index may have any rank
        return _nothing(b)
    dim = canonical_dim(dim, x.type.rank)
    at = list(b.at) or [Index()]
    place = b.as_index(b.read(index, b.at), x.type.shape[dim])
    return x[[*at[:dim], place, *at[dim + 1 :]]]


def _nothing(b: Builder) -> Value:
    """A placeholder for the element of an empty result."""
    return store(b, literal(b, 0, out_dtype(b)))


def index_select(b: Builder, x: Operand, dim: int, index: Operand) -> Value:
    if not x.type.rank:
        return x[()]
    dim = canonical_dim(dim, x.type.rank)
    place = b.as_index(index[[b.at[dim]] if index.type.rank else ()], x.type.shape[dim])
    return x[[*b.at[:dim], place, *b.at[dim + 1 :]]]


def embedding(b: Builder, weight: Operand, indices: Operand, *_: Any, **__: Any) -> Value:
    *which, column = b.at
    return weight[[b.as_index(indices[which], weight.type.shape[0]), column]]


def take(b: Builder, x: Operand, index: Operand) -> Value:
    if x.type.numel == 0:
        return _nothing(b) if index.type.numel == 0 else not_lowerable(b, "takes elements of an empty tensor.")
    place = b.as_index(index[b.at], x.type.numel, wrap=True)
    return x[unflatten(place, x.type.shape)]


def indexed(
    b: Builder, shape: Sequence[Dim], indices: Sequence[Operand | None], at: Sequence[Index], mask: Value | None = None
) -> list[Index]:
    """The coordinates, in a tensor of ``shape``, of the element that is at ``at`` in ``tensor[indices]``. Negative
    indices wrap. Indices are checked where ``mask`` is true.

    The dimensions of the broadcast index tensors replace the first indexed dimension if the indexed ones are adjacent;
    otherwise they come first.
    """
    indexed_dims = [n for n, i in enumerate(indices) if i is not None]
    for n in indexed_dims:
        index = indices[n]
        assert index is not None
        if index.type.dtype in (torch.bool, torch.uint8):
            not_lowerable(b, "selects by a mask, so the size of its result depends on data.")
    if not indexed_dims:
        return list(at)
    rank = max(i.type.rank for i in indices if i is not None)
    front = indexed_dims[0] if indexed_dims == list(range(indexed_dims[0], indexed_dims[-1] + 1)) else 0
    chosen, rest = at[front : front + rank], iter([*at[:front], *at[front + rank :]])
    out: list[Index] = []
    for d in range(len(shape)):
        index = indices[d] if d < len(indices) else None
        out.append(
            next(rest) if index is None else b.as_index(b.broadcast(index, chosen), shape[d], wrap=True, mask=mask)
        )
    return out


def index_tensor(b: Builder, x: Operand, indices: Sequence[Operand | None]) -> Value:
    return x[indexed(b, x.type.shape, indices, b.at)]


def masked_index(b: Builder, x: Operand, mask: Operand, indices: Sequence[Operand | None], fill: Number) -> Value:
    """``x[indices]`` where the mask is true, and ``fill`` elsewhere, where indices may be out of range. ``x`` may be
    empty.
    """
    inside = b.broadcast(mask)
    for size in x.type.shape:
        inside = inside if is_positive(size) else inside & (b.number(size, torch.int64) > 0)
    value = b.math(x.where(inside, indexed(b, x.type.shape, indices, b.at, inside)))
    return store(b, b.where(inside, value, literal(b, fill, x.type.dtype)))


RULES: Mapping[Any, Rule] = {
    aten.gather.default: gather,
    aten.index_select.default: index_select,
    aten.embedding.default: embedding,
    aten.take.default: take,
    aten.index.Tensor: index_tensor,
    aten._unsafe_index.Tensor: index_tensor,
    aten._unsafe_masked_index.default: masked_index,
}
