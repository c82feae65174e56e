"""Concatenation, padding, flips, repetition, triangles: each element of the result is an element of an operand, or a
fill value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

from keel.loops.builder import Builder, Number, Operand, Rule, Value
from keel.loops.index import Index, flatten, floordiv, mod, unflatten
from keel.types import Dim, as_dim, contiguous_strides

from .rule_arguments import canonical_dim, exact, literal, not_lowerable, out_dtype, store
from .views import diagonal_at, position_of, start_of

aten = torch.ops.aten


# -- joining -----------------------------------------------------------------------------------------


def cat(b: Builder, tensors: Sequence[Operand], dim: int = 0) -> Value:
    """Concatenates. Empty tensors of rank 1 are skipped, as in eager."""
    parts = [x for x in tensors if not (x.type.rank == 1 and x.type.shape[0] == 0)] or [tensors[0]]
    dim = canonical_dim(dim, len(b.shape))
    start: Dim = 0
    pieces: list[tuple[Operand, Dim]] = []
    for x in parts:
        pieces.append((x, start))
        start = as_dim(start + x.type.shape[dim])
    return _piecewise(b, pieces, dim, lambda x, i: [*b.at[:dim], i, *b.at[dim + 1 :]])


def stack(b: Builder, tensors: Sequence[Operand], dim: int = 0) -> Value:
    dim = canonical_dim(dim, len(b.shape))
    rest = [*b.at[:dim], *b.at[dim + 1 :]]
    return _piecewise(b, [(x, n) for n, x in enumerate(tensors)], dim, lambda x, i: rest)


def _piecewise(
    b: Builder, pieces: Sequence[tuple[Operand, Dim]], dim: int, at: Callable[[Operand, Index], Sequence[Index]]
) -> Value:
    """The element of the piece that coordinate ``dim`` falls into. Each piece comes with its start; ``at`` maps a piece
    and the coordinate within it to the piece's coordinates.
    """
    dtype = out_dtype(b)
    here = b.position(b.at[dim])
    result: Value | None = None
    for n in reversed(range(len(pieces))):
        x, start = pieces[n]
        inside = None
        if n + 1 < len(pieces):
            inside = here < b.number(pieces[n + 1][1], torch.int64)
        if n:
            after = here >= b.number(start, torch.int64)
            inside = after if inside is None else after & inside
        where = at(x, b.at[dim] - start)
        element = x[where] if inside is None else x.where(inside, where)
        value = b.math(b.cast(element, dtype))
        result = value if result is None else b.where(here < b.number(pieces[n + 1][1], torch.int64), value, result)
    assert result is not None
    return store(b, result)


def pad(b: Builder, x: Operand, widths: Sequence[Dim], value: Number = 0) -> Value:
    """``widths`` has a pair for each dimension, the last one first. A negative width crops."""
    at = list(b.at)
    inside: list[Value] = []
    for n in range(len(widths) // 2):
        dim = x.type.rank - 1 - n
        low, high = widths[2 * n], widths[2 * n + 1]
        here = at[dim] - low
        inside += _between(b, here, x.type.shape[dim], low, high)
        at[dim] = here
    if not inside:
        return store(b, x[at])
    mask = _all(inside)
    return store(b, b.where(mask, b.math(x.where(mask, at)), literal(b, value, x.type.dtype)))


def _between(b: Builder, here: Index, size: Dim, low: Dim, high: Dim) -> list[Value]:
    """The conditions of 0 <= here < size, without those that follow from the widths."""
    conditions = [] if isinstance(low, int) and low <= 0 else [b.position(here) >= 0]
    if isinstance(high, int) and high <= 0:
        return conditions
    return [*conditions, b.position(here) < b.number(size, torch.int64)]


def _all(conditions: Sequence[Value]) -> Value:
    mask = conditions[0]
    for c in conditions[1:]:
        mask = mask & c
    return mask


# -- one part of a whole -----------------------------------------------------------------------------


def _slice_mask(b: Builder, dim: int, start: Dim, count: Dim, step: int) -> tuple[Value | None, Index]:
    """The condition that coordinate ``dim`` is in a slice of ``count`` elements (None if it always is), and the
    coordinate within the slice.
    """
    here = b.at[dim] - start
    conditions: list[Value] = []
    if start != 0:
        conditions.append(b.position(here) >= 0)
    if step != 1:
        conditions.append(b.position(mod(here, step)).equals(0))
    if sympy.expand(start + (count - 1) * step + 1 - b.shape[dim]) != 0:
        conditions.append(b.position(here) < b.number(as_dim(count * step), torch.int64))
    return (_all(conditions) if conditions else None), floordiv(here, step)


def slice_scatter(
    b: Builder, x: Operand, part: Operand, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Value:
    dim = canonical_dim(dim, x.type.rank)
    first = start_of(b, start, x.type.shape[dim])
    return _written(b, x, part, dim, first, part.type.shape[dim], step)


def slice_backward(b: Builder, grad: Operand, sizes: Sequence[Dim], dim: int, start: Dim, end: Dim, step: int) -> Value:
    dim = canonical_dim(dim, len(b.shape))
    return _written(b, None, grad, dim, start_of(b, start, b.shape[dim]), grad.type.shape[dim], step)


def _written(b: Builder, x: Operand | None, part: Operand, dim: int, start: Dim, count: Dim, step: int) -> Value:
    mask, within = _slice_mask(b, dim, start, count, step)
    at = [*b.at[:dim], within, *b.at[dim + 1 :]]
    if mask is None:
        return store(b, part[at])
    new = b.math(b.cast(part.where(mask, at), out_dtype(b)))
    return store(b, new if x is None else b.where(mask, new, b.math(x[b.at])))


def select_scatter(b: Builder, x: Operand, part: Operand, dim: int, index: Dim) -> Value:
    dim = canonical_dim(dim, x.type.rank)
    return _placed(b, x, part, dim, position_of(b, index, x.type.shape[dim]))


def select_backward(b: Builder, grad: Operand, sizes: Sequence[Dim], dim: int, index: Dim) -> Value:
    dim = canonical_dim(dim, len(b.shape))
    return _placed(b, None, grad, dim, position_of(b, index, b.shape[dim]))


def _placed(b: Builder, x: Operand | None, part: Operand, dim: int, index: Dim) -> Value:
    mask = b.position(b.at[dim]).equals(b.number(index, torch.int64))
    new = b.math(b.cast(part.where(mask, [*b.at[:dim], *b.at[dim + 1 :]]), out_dtype(b)))
    return store(b, new if x is None else b.where(mask, new, b.math(x[b.at])))


def diagonal_scatter(b: Builder, x: Operand, part: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    return _on_diagonal(b, x, part, offset, dim1, dim2)


def diagonal_backward(b: Builder, grad: Operand, sizes: Sequence[Dim], offset: int, dim1: int, dim2: int) -> Value:
    return _on_diagonal(b, None, grad, offset, dim1, dim2)


def _on_diagonal(b: Builder, x: Operand | None, part: Operand, offset: int, dim1: int, dim2: int) -> Value:
    d1, d2 = canonical_dim(dim1, len(b.shape)), canonical_dim(dim2, len(b.shape))
    along = b.at[d1] - max(-offset, 0)
    mask = b.position(along).equals(b.position(b.at[d2] - max(offset, 0)))
    rest = [i for d, i in enumerate(b.at) if d not in (d1, d2)]
    assert diagonal_at(len(b.shape), offset, dim1, dim2, [*rest, along])[d1] == b.at[d1]
    new = b.math(b.cast(part.where(mask, [*rest, along]), out_dtype(b)))
    return store(b, new if x is None else b.where(mask, new, b.math(x[b.at])))


def unfold_backward(b: Builder, grad: Operand, sizes: Sequence[Dim], dim: int, size: int, step: int) -> Value:
    """Each element is the sum of its gradients in all windows that contain it."""
    if not sizes:
        return store(b, grad[(0,) * grad.type.rank])
    dim = canonical_dim(dim, len(b.shape))
    covering = -(-size // step)
    (back,) = b.fold_over([covering])
    window = floordiv(b.at[dim], step) - back
    within = b.at[dim] - window * step
    mask = (
        (b.position(window) >= 0)
        & (b.position(window) < b.number(grad.type.shape[dim], torch.int64))
        & (b.position(within) < size)
    )
    at = [*b.at[:dim], window, *b.at[dim + 1 :], within]
    element = b.math(grad.where(mask, [0 if n == 1 else i for n, i in zip(grad.type.shape, at, strict=True)]))
    return store(b, b.reduce("any" if element.dtype == torch.bool else "sum", element))


# -- order -------------------------------------------------------------------------------------------


def flip(b: Builder, x: Operand, dims: Sequence[int]) -> Value:
    at = list(b.at)
    for dim in {canonical_dim(d, x.type.rank) for d in dims} if x.type.rank else ():
        at[dim] = (at[dim] * -1) + (x.type.shape[dim] - 1)
    return x[at]


def repeat(b: Builder, x: Operand, repeats: Sequence[Dim]) -> Value:
    at = b.at[len(b.shape) - x.type.rank :]
    return x[
        [
            i if r == 1 else mod(i, n) if n != 0 else i
            for i, r, n in zip(at, repeats[len(repeats) - x.type.rank :], x.type.shape, strict=True)
        ]
    ]


def roll(b: Builder, x: Operand, shifts: Dim | Sequence[Dim], dims: int | Sequence[int] = ()) -> Value:
    """Without dims, the flattened tensor is rolled."""
    moves = list(shifts) if isinstance(shifts, list | tuple) else [shifts]
    over = [dims] if isinstance(dims, int) else list(dims)
    if not over:
        total = x.type.numel
        return x[unflatten(_rolled(flatten(b.at, contiguous_strides(b.shape)), moves[0], total), x.type.shape)]
    at = list(b.at)
    for move, dim in zip(moves, over, strict=True):
        d = canonical_dim(dim, x.type.rank)
        at[d] = _rolled(at[d], move, x.type.shape[d])
    return x[at]


def _rolled(i: Index, move: Dim, size: Dim) -> Index:
    if isinstance(move, int) and isinstance(size, int):
        return mod(i + (-move % size if size else 0), size) if size and move % size else i
    return mod(i - move, size)


# -- triangles ---------------------------------------------------------------------------------------


def tril(b: Builder, x: Operand, diagonal: Dim = 0) -> Value:
    i, j = b.at[-2:]
    return _masked(b, x, b.position(j) <= b.position(i + diagonal))


def triu(b: Builder, x: Operand, diagonal: Dim = 0) -> Value:
    i, j = b.at[-2:]
    return _masked(b, x, b.position(j) >= b.position(i + diagonal))


def _masked(b: Builder, x: Operand, mask: Value) -> Value:
    return x.where(mask, b.at)


# -- edges -------------------------------------------------------------------------------------------


def edge_pad(place: Callable[[Builder, Value, Value], Value]) -> Rule:
    """Padding with elements of the tensor. ``place(b, i, n)`` maps coordinate i to one in 0..n-1."""

    def rule(b: Builder, x: Operand, padding: Sequence[Dim]) -> Value:
        at = list(b.at)
        for n in range(len(padding) // 2):
            dim = x.type.rank - 1 - n
            low, high = padding[2 * n], padding[2 * n + 1]
            if low == 0 and high == 0:
                continue
            size = x.type.shape[dim]
            at[dim] = b.sure_index(place(b, b.position(at[dim] - low), b.number(size, torch.int64)), size)
        return x[at]

    return rule


def reflected(b: Builder, i: Value, n: Value) -> Value:
    inside = b.apply("abs", i)
    last = n - 1
    return last - b.apply("abs", last - inside)


def replicated(b: Builder, i: Value, n: Value) -> Value:
    return b.apply("minimum", b.apply("maximum", i, 0), n - 1)


# -- whole values ------------------------------------------------------------------------------------


def copy(b: Builder, x: Operand, source: Operand, non_blocking: bool = False) -> Value:
    if x.type.device != source.type.device:
        not_lowerable(b, f"copies from {source.type.device} to another device.")
    return store(b, b.broadcast(source))


def fill(b: Builder, x: Operand, value: Operand | Number) -> Value:
    if isinstance(value, Operand):
        return store(b, b.broadcast(value))
    return store(b, literal(b, exact(b, value, x.type.dtype), x.type.dtype))


RULES: Mapping[Any, Rule] = {
    aten.cat.default: cat,
    aten.stack.default: stack,
    aten.constant_pad_nd.default: pad,
    aten.slice_scatter.default: slice_scatter,
    aten.slice_backward.default: slice_backward,
    aten.select_scatter.default: select_scatter,
    aten.select_backward.default: select_backward,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.diagonal_backward.default: diagonal_backward,
    aten.unfold_backward.default: unfold_backward,
    aten.flip.default: flip,
    aten.repeat.default: repeat,
    aten.roll.default: roll,
    aten.tril.default: tril,
    aten.triu.default: triu,
    **{getattr(aten, f"reflection_pad{n}d").default: edge_pad(reflected) for n in (1, 2, 3)},
    **{getattr(aten, f"replication_pad{n}d").default: edge_pad(replicated) for n in (1, 2, 3)},
    aten.copy.default: copy,
    aten.fill.Scalar: fill,
    aten.fill.Tensor: fill,
}
