"""Views, as pure index maps: each element of the result is one element of the operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from keel.loops.builder import Builder, Operand, Rule, Value, reshaped
from keel.loops.index import Index, floordiv, mod
from keel.loops.symbolic_sizes import is_positive, non_negative
from keel.types import Dim, as_dim

from .rule_arguments import canonical_dim, math_dtype, not_lowerable, overloads, store
from .unary import identity

aten = torch.ops.aten
MAX_SIZE = 2**63 - 1


def view(b: Builder, x: Operand, *_: Any, **__: Any) -> Value:
    if 0 in b.shape:
        return store(b, b.const(0, math_dtype(x.type.dtype)))
    return x[reshaped(b.at, x.type.shape, b.shape)]


def expand(b: Builder, x: Operand, *_: Any, **__: Any) -> Value:
    return b.broadcast(x)


def permute(b: Builder, x: Operand, dims: Sequence[int]) -> Value:
    at: list[Index] = [Index()] * x.type.rank
    for here, dim in zip(b.at, dims, strict=True):
        at[canonical_dim(dim, x.type.rank)] = here
    return x[at]


def transpose(b: Builder, x: Operand, dim0: int, dim1: int) -> Value:
    at = list(b.at)
    if at:
        d0, d1 = canonical_dim(dim0, len(at)), canonical_dim(dim1, len(at))
        at[d0], at[d1] = at[d1], at[d0]
    return x[at]


def t(b: Builder, x: Operand) -> Value:
    return x[b.at[::-1]]


def unsqueeze(b: Builder, x: Operand, dim: int) -> Value:
    at = list(b.at)
    del at[canonical_dim(dim, len(at))]
    return x[at]


def squeeze(b: Builder, x: Operand, dims: int | Sequence[int] | None = None) -> Value:
    """Dimensions in ``dims`` whose size is not 1 stay."""
    rank = x.type.rank
    named = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {d for n in named if rank and x.type.shape[d := canonical_dim(n, rank)] == 1}
    left = iter(b.at)
    return x[[0 if d in gone else next(left) for d in range(rank)]]


def start_of(b: Builder, start: Dim | None, size: Dim) -> Dim:
    """The first coordinate of a slice. A negative ``start`` counts from the end, and the result is never negative."""
    if start is None:
        return 0
    if isinstance(start, int) and isinstance(size, int):
        return min(max(start + size if start < 0 else start, 0), size)
    if non_negative(start):
        return start
    if is_positive(as_dim(sympy.sympify(-start))):
        return as_dim(sympy.Max(0, start + size)) if not non_negative(as_dim(start + size)) else as_dim(start + size)
    not_lowerable(b, f"starts at {start}, whose sign is unknown.")


def slice_(
    b: Builder, x: Operand, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Value:
    dim = canonical_dim(dim, x.type.rank)
    size = x.type.shape[dim]
    to_the_end = step == 1 and (end is None or (isinstance(end, int) and end >= MAX_SIZE))
    first = as_dim(sympy.expand(size - b.shape[dim])) if to_the_end else start_of(b, start, size)
    at = list(b.at)
    at[dim] = at[dim] * step + first
    return x[at]


def position_of(b: Builder, index: Dim, size: Dim) -> Dim:
    """The coordinate of ``index``. A negative one counts from the end."""
    if isinstance(index, int):
        return index if index >= 0 else as_dim(index + size)
    if non_negative(index):
        return index
    if is_positive(as_dim(-index)):
        return as_dim(index + size)
    not_lowerable(b, f"takes element {index}, whose sign is unknown.")


def select(b: Builder, x: Operand, dim: int, index: Dim) -> Value:
    dim = canonical_dim(dim, x.type.rank)
    at = list(b.at)
    return x[[*at[:dim], position_of(b, index, x.type.shape[dim]), *at[dim:]]]


def diagonal_at(rank: int, offset: int, dim1: int, dim2: int, at: Sequence[Index]) -> list[Index]:
    """The coordinates, in the full tensor, of the element at ``at`` in the diagonal, which is the last dimension."""
    d1, d2 = canonical_dim(dim1, rank), canonical_dim(dim2, rank)
    rest = iter(at[:-1])
    along = at[-1]
    shift = {d1: max(-offset, 0), d2: max(offset, 0)}
    return [along + shift[d] if d in shift else next(rest) for d in range(rank)]


def diagonal(b: Builder, x: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return x[diagonal_at(x.type.rank, offset, dim1, dim2, b.at)]


def unfold(b: Builder, x: Operand, dim: int, size: int, step: int) -> Value:
    if not x.type.rank:
        return x[()]
    *at, within = b.at
    dim = canonical_dim(dim, x.type.rank)
    at[dim] = at[dim] * step + within
    return x[at]


def as_strided(
    b: Builder, x: Operand, size: Sequence[Dim], stride: Sequence[Dim], storage_offset: Dim | None = None
) -> Value:
    """Lowers only views that start at the operand's first element, and only of operands without gaps in memory."""
    if storage_offset is not None:
        not_lowerable(b, "counts from the start of the storage, which may be before its operand.")
    offset = sum((i * s for i, s in zip(b.at, stride, strict=True)), Index())
    at = _at_offset(x, offset)
    if at is None:
        not_lowerable(b, f"reads memory of {x.type}, which has gaps or overlaps.")
    return x[at]


def _at_offset(x: Operand, offset: Index) -> list[Index] | None:
    """The coordinates in ``x`` of the element that is ``offset`` elements after its first in memory; None if ``x`` is
    not dense.
    """
    shape, strides = x.type.shape, x.type.strides
    order = sorted((d for d in range(x.type.rank) if shape[d] != 1), key=lambda d: _magnitude(strides[d]))
    at: list[Index] = [Index()] * x.type.rank
    step: Dim = 1
    for n, d in enumerate(order):
        if sympy.expand(strides[d] - step) != 0:
            return None
        quotient = floordiv(offset, step)
        at[d] = quotient if n == len(order) - 1 else mod(quotient, shape[d])
        step = as_dim(step * shape[d])
    return at


def _magnitude(stride: Dim) -> int:
    """The stride if every size is large. It orders symbolic strides, which are products of sizes."""
    return stride if isinstance(stride, int) else int(stride.subs(dict.fromkeys(stride.free_symbols, 1 << 20)))


def pixel_shuffle(b: Builder, x: Operand, factor: int) -> Value:
    *batch, c, i, j = b.at
    channel = c * (factor * factor) + mod(i, factor) * factor + mod(j, factor)
    return x[[*batch, channel, floordiv(i, factor), floordiv(j, factor)]]


def pixel_unshuffle(b: Builder, x: Operand, factor: int) -> Value:
    *batch, c, i, j = b.at
    channel, within = floordiv(c, factor * factor), mod(c, factor * factor)
    return x[[*batch, channel, i * factor + floordiv(within, factor), j * factor + mod(within, factor)]]


RULES: Mapping[Any, Rule] = {
    aten.view.default: view,
    aten._unsafe_view.default: view,
    aten._reshape_alias.default: view,
    aten.view_copy.default: view,
    aten._reshape_copy.default: view,
    aten.reshape.default: view,
    aten.expand.default: expand,
    aten.expand_copy.default: expand,
    aten.permute.default: permute,
    aten.permute_copy.default: permute,
    aten.transpose.int: transpose,
    aten.transpose_copy.int: transpose,
    aten.t.default: t,
    aten.t_copy.default: t,
    aten.unsqueeze.default: unsqueeze,
    aten.unsqueeze_copy.default: unsqueeze,
    **overloads(aten.squeeze, squeeze, "default", "dim", "dims"),
    **overloads(aten.squeeze_copy, squeeze, "default", "dim", "dims"),
    aten.slice.Tensor: slice_,
    aten.slice_copy.Tensor: slice_,
    aten.select.int: select,
    aten.select_copy.int: select,
    aten.diagonal.default: diagonal,
    aten.diagonal_copy.default: diagonal,
    aten.unfold.default: unfold,
    aten.unfold_copy.default: unfold,
    aten.as_strided.default: as_strided,
    aten.as_strided_copy.default: as_strided,
    aten.alias_copy.default: identity,
    aten.detach_copy.default: identity,
    aten.pixel_shuffle.default: pixel_shuffle,
    aten.pixel_unshuffle.default: pixel_unshuffle,
}
