"""Type rules of operators that move elements: views with exact strides, slices, concatenation, indexing, unknown sizes.

Where a bound must be compared with a symbolic size and no proof decides, the size is a formula with Max and Min.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from keel.spec.rules import (
    Args,
    DtypeRule,
    LayoutRule,
    Out,
    Shape,
    ShapeRule,
    alike,
    broadcast_shapes,
    canonical,
    elementwise_strides,
    is_dense,
    like,
    number,
    preserved,
    promote,
    shape_of,
    sizes,
    typical,
)
from keel.types import Dim, TensorType, as_dim, contiguous_strides, product

END = 2**63 - 1
"""What stands for "to the end" among the bounds of a slice."""
Geometry = Callable[[Args], tuple[Sequence[Any], Sequence[Any]]]
"""Sizes and strides of a view."""


def unknown(i: int = 0) -> sympy.Symbol:
    """A size that only the run will tell. Equal ones within a call are one size; each call has sizes of its own."""
    return sympy.Symbol(f"?{i}", integer=True, nonnegative=True)


def view(shape: str, strides: str, of: Geometry, dtype: DtypeRule | None = None) -> Out:
    """The type of a view: the operand's elements, found with other sizes and strides."""
    return Out(
        dtype or like("self"),
        ShapeRule(shape, lambda args: of(args)[0]),
        LayoutRule(strides, lambda args, _: of(args)[1]),
    )


# -- arithmetic on sizes ----------------------------------------------------------------------------------------------


def at_least(a: Dim, b: Dim) -> bool | None:
    """Whether a >= b; None where sizes of 1 or more do not settle it."""
    difference = as_dim(sympy.expand(a - b))
    if isinstance(difference, int):
        return difference >= 0
    return (
        True
        if _never_negative(difference)
        else False
        if _never_negative(as_dim(sympy.expand(-difference - 1)))
        else None
    )


def _never_negative(d: Dim) -> bool:
    if isinstance(d, int):
        return d >= 0
    shift = {s: 1 + sympy.Dummy(integer=True, nonnegative=True) for s in d.free_symbols if s.is_positive}
    return all(t.is_nonnegative for t in sympy.Add.make_args(sympy.expand(d.xreplace(shift))))


def largest(a: Dim, b: Dim) -> Dim:
    order = at_least(a, b)
    return as_dim(sympy.Max(a, b)) if order is None else a if order else b


def smallest(a: Dim, b: Dim) -> Dim:
    order = at_least(a, b)
    return as_dim(sympy.Min(a, b)) if order is None else b if order else a


def floor_div(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return as_dim(a) if b == 1 else as_dim(sympy.floor(sympy.expand(a) / b))


# -- views ------------------------------------------------------------------------------------------------------------


def _reshaped(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x, target = args["self"], list(sizes(args["size"] if "size" in args else args["shape"]))
    if -1 in target:
        at = target.index(-1)
        rest = product(as_dim(n) for i, n in enumerate(target) if i != at)
        target[at] = as_dim(sympy.cancel(sympy.sympify(x.numel) / rest)) if rest != 0 else 0
    shape = tuple(as_dim(n) for n in target)
    return shape, view_strides(x, shape) or contiguous_strides(shape)


def view_strides(x: TensorType, shape: Shape) -> Shape | None:
    """The strides with which ``x`` has the sizes ``shape`` in place (``at::detail::computeStride``); None if its memory
    does not allow it.
    """
    if x.is_contiguous or any(n == 0 for n in (*x.shape, *shape)):
        return contiguous_strides(shape)
    strides: list[Dim] = [1] * len(shape)
    at, last = len(shape) - 1, x.rank - 1
    base, held, assigned = x.strides[-1], as_dim(1), as_dim(1)
    for d in range(last, -1, -1):
        held = as_dim(sympy.expand(held * x.shape[d]))
        joined = d > 0 and (x.shape[d - 1] == 1 or alike(x.strides[d - 1], held * base))
        if joined:
            continue
        # What is left over belongs to the outermost part, for the numbers of elements are equal.
        while at >= 0 and (d == 0 or shape[at] == 1 or not alike(assigned, held)):
            strides[at] = as_dim(sympy.expand(assigned * base))
            assigned = as_dim(sympy.expand(assigned * shape[at]))
            at -= 1
        if d > 0:
            if not alike(assigned, held):
                return None
            base, held, assigned = x.strides[d - 1], as_dim(1), as_dim(1)
    return tuple(strides)


RESHAPED = view("size, with numel(self) / (the others) for -1", "those of self, dimensions split and merged", _reshaped)


def _permuted(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x = args["self"]
    order = [canonical(d, x.rank) for d in args["dims"]]
    return [x.shape[d] for d in order], [x.strides[d] for d in order]


PERMUTED = view("shape(self)[dims[i]]", "strides(self)[dims[i]]", _permuted)


def _expanded(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x, target = args["self"], sizes(args["size"])
    new = len(target) - x.rank
    shape, strides = [1] * new + list(x.shape), [0] * new + list(x.strides)
    for d, n in enumerate(target):
        if n != -1 and n != shape[d] and shape[d] == 1:
            shape[d], strides[d] = n, 0
    return shape, strides


EXPANDED = view("size, with shape(self) for -1", "strides(self), 0 where a size of 1 is repeated", _expanded)


def _squeezed(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x, named = args["self"], args.get("dim")
    named = range(x.rank) if named is None else [named] if isinstance(named, int) else named
    gone = {canonical(d, x.rank) for d in named}
    remaining = [d for d in range(x.rank) if d not in gone or x.shape[d] != 1]
    return [x.shape[d] for d in remaining], [x.strides[d] for d in remaining]


SQUEEZED = view("shape(self) without those of dim that are 1", "strides(self) of the dimensions that stay", _squeezed)


def _unsqueezed(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x = args["self"]
    at = args["dim"] % (x.rank + 1)
    step = x.shape[at] * x.strides[at] if at < x.rank else 1
    return [*x.shape[:at], 1, *x.shape[at:]], [*x.strides[:at], step, *x.strides[at:]]


UNSQUEEZED = view(
    "shape(self) with 1 before dim", "strides(self) with shape[dim] * stride[dim] before dim", _unsqueezed
)


def _from_start(value: Any, size: Dim, default: Dim) -> Dim:
    """A bound of a slice, counted from the first element; negative ones count from the end."""
    value = number(value)
    if value is None or value == END:
        return default
    value, sign = as_dim(value), at_least(value, 0)
    negative = typical(value) < 0 if sign is None else not sign
    return as_dim(sympy.expand(value + size)) if negative else value


def _within(bound: Dim, size: Dim) -> Dim:
    return smallest(largest(bound, 0), size)


def extent_of(args: Args) -> Dim:
    """How many elements a slice takes along its dimension."""
    size = args["self"].shape[canonical(args["dim"], args["self"].rank)]
    start, end = _from_start(args.get("start"), size, 0), _from_start(args.get("end"), size, size)
    if at_least(start, end):
        return 0
    step = number(args.get("step", 1))
    length = largest(as_dim(sympy.expand(_within(end, size) - _within(start, size))), 0)
    return floor_div(as_dim(sympy.expand(length + step - 1)), step)


def _sliced(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x = args["self"]
    d = canonical(args["dim"], x.rank)
    shape, strides = list(x.shape), list(x.strides)
    shape[d], strides[d] = extent_of(args), strides[d] * number(args.get("step", 1))
    return shape, strides


SLICED = view(
    "shape(self), at dim ceil(max(end - start, 0) / step) with start and end within 0 .. shape[dim]",
    "strides(self), at dim times step",
    _sliced,
)


def _selected(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x = args["self"]
    d = canonical(args["dim"], x.rank)
    return [*x.shape[:d], *x.shape[d + 1 :]], [*x.strides[:d], *x.strides[d + 1 :]]


SELECTED = view("shape(self) without dim", "strides(self) without dim", _selected)


def diagonal_length(rows: Dim, columns: Dim, offset: int) -> Dim:
    """How many elements the diagonal has that starts ``offset`` columns from the first (rows, if negative)."""
    across = as_dim(columns - offset) if offset >= 0 else columns
    down = rows if offset >= 0 else as_dim(rows + offset)
    return largest(smallest(down, across), 0)


def _diagonal(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x = args["self"]
    d1, d2 = canonical(args["dim1"], x.rank), canonical(args["dim2"], x.rank)
    rest = [d for d in range(x.rank) if d not in (d1, d2)]
    length = diagonal_length(x.shape[d1], x.shape[d2], args["offset"])
    return [*(x.shape[d] for d in rest), length], [*(x.strides[d] for d in rest), x.strides[d1] + x.strides[d2]]


DIAGONAL = view(
    "shape(self) without dim1 and dim2, then the diagonal's length",
    "strides(self) without dim1 and dim2, then stride[dim1] + stride[dim2]",
    _diagonal,
)


def _windows(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x, size, step = args["self"], number(args["size"]), number(args["step"])
    if not x.rank:
        return [size], [1]
    d = canonical(args["dimension"], x.rank)
    shape, strides = list(x.shape), list(x.strides)
    shape[d], strides[d] = as_dim(floor_div(as_dim(shape[d] - size), step) + 1), strides[d] * step
    return [*shape, size], [*strides, x.strides[d]]


WINDOWS = view(
    "shape(self), at dimension (n - size) // step + 1, then size",
    "strides(self), at dimension times step, then stride[dimension]",
    _windows,
)


def _reinterpreted(args: Args) -> tuple[Sequence[Any], Sequence[Any]]:
    x, new = args["self"], args["dtype"].itemsize
    old = x.dtype.itemsize
    shape, strides = list(x.shape), list(x.strides)
    if old > new:
        ratio = old // new
        shape, strides = [*shape[:-1], shape[-1] * ratio], [*(s * ratio for s in strides[:-1]), 1]
    elif new > old:
        ratio = new // old
        shape = [*shape[:-1], floor_div(shape[-1], ratio)]
        strides = [*(floor_div(s, ratio) for s in strides[:-1]), 1]
    return shape, strides


BITCAST = view(
    "shape(self), the last times itemsize(self) / itemsize(dtype)",
    "strides(self) in elements of dtype",
    _reinterpreted,
    DtypeRule("dtype", lambda args: args["dtype"]),
)
SAME = view("shape(self)", "strides(self)", lambda args: (args["self"].shape, args["self"].strides))
STRIDED = view("size", "stride", lambda args: (sizes(args["size"]), sizes(args["stride"])))


# -- memory formats ---------------------------------------------------------------------------------------------------


def channels_last(shape: Shape) -> Shape:
    """Strides of (N, C, ...) with the channels innermost."""
    order = [0, *range(2, len(shape)), 1]
    packed = contiguous_strides(tuple(shape[d] for d in order))
    return tuple(packed[order.index(d)] for d in range(len(shape)))


def suggests_channels_last(x: TensorType) -> bool:
    """Whether the strides of an image or volume say so (``is_channels_last_strides_2d_s4``)."""
    if x.rank not in (4, 5) or x.strides[1] == 0:
        return False
    least: Dim = 0
    if x.strides[0] == x.strides[1]:  # N111
        return False
    for d in (1, *range(x.rank - 1, 1, -1), 0):
        if x.shape[d] == 0 or typical(x.strides[d]) < typical(least):
            return False
        if d == 0 and x.strides[0] == x.strides[1]:
            return False
        least = as_dim(x.strides[d] * (x.shape[d] if at_least(x.shape[d], 2) else 1))
    return True


def formatted(name: str = "self") -> LayoutRule:
    """What ``memory_format`` asks for; that of the operand where it asks for nothing."""
    keep = preserved(name)

    def of(args: Args, shape: Shape) -> Sequence[Dim]:
        memory_format = args.get("memory_format")
        if memory_format in (torch.channels_last, torch.channels_last_3d):
            return channels_last(shape)
        return contiguous_strides(shape) if memory_format is torch.contiguous_format else keep.of(args, shape)

    return LayoutRule(f"memory_format or preserve({name})", of)


def suggested(name: str) -> LayoutRule:
    """Channels last if all operands are, row-major otherwise."""

    def of(args: Args, shape: Shape) -> Sequence[Dim]:
        value = args[name]
        candidates = [t for t in (value if isinstance(value, list | tuple) else [value]) if t.shape != (0,)]
        last = bool(candidates) and all(map(suggests_channels_last, candidates))
        return channels_last(shape) if last else contiguous_strides(shape)

    return LayoutRule(f"channels last if {name} is, else row-major", of)


# -- joining, padding, indexing ---------------------------------------------------------------------------------------


def _joined(args: Args) -> Shape:
    parts = [t for t in args["tensors"] if t.shape != (0,)] or args["tensors"][:1]
    d = canonical(args["dim"], parts[0].rank)
    total = as_dim(sum(t.shape[d] for t in parts))
    return tuple(total if i == d else n for i, n in enumerate(parts[0].shape))


JOINED = ShapeRule("shape(tensors[0]), at dim the sum; a tensor of shape [0] does not count", _joined)


def _padded(args: Args) -> Shape:
    x, pad = args["self"], sizes(args["pad"])
    shape = list(x.shape)
    for i in range(0, len(pad), 2):
        d = x.rank - 1 - i // 2
        shape[d] = as_dim(shape[d] + pad[i] + pad[i + 1])
    return tuple(shape)


PADDED = ShapeRule("shape(self) + before + after", _padded)


def replaced_at(name: str, by: str, of: Callable[[Args], Any]) -> ShapeRule:
    """``shape(name)`` with another size at ``dim``; a scalar stays one."""

    def shape(args: Args) -> Shape:
        own = args[name].shape
        d = canonical(args["dim"], len(own))
        return tuple(as_dim(number(of(args))) if i == d else n for i, n in enumerate(own))

    return ShapeRule(f"shape({name}), at dim {by}", shape)


def _index_parts(args: Args) -> tuple[TensorType, list[TensorType | None]]:
    """The operand and one index or None per dimension, indices brought together at the front if None stands between
    them. Masks become the indices of their true elements, of unknown number.
    """
    x, indices = args["self"], []
    for i, index in enumerate(args["indices"]):
        if index is None or index.dtype not in (torch.bool, torch.uint8, torch.int8):
            indices.append(index)
        else:
            index_type = TensorType.dense(torch.int64, (unknown(i),), index.device)
            indices.extend([index_type] * index.rank)
    indices += [None] * (x.rank - len(indices))
    places = [d for d, index in enumerate(indices) if index is not None]
    if places and places[-1] - places[0] >= len(places):
        order = [*places, *(d for d in range(x.rank) if d not in places)]
        x = TensorType(x.dtype, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), x.device)
        indices = [indices[d] for d in order]
    return x, indices


def _indexed(args: Args) -> TensorType:
    """The operand's element type with the sizes of the result, and strides that say how it is read."""
    x, indices = _index_parts(args)
    places = [d for d, index in enumerate(indices) if index is not None]
    first, after = places[0], places[-1] + 1
    result = broadcast_shapes([index.shape for index in indices if index is not None])
    shape = (*x.shape[:first], *result, *x.shape[after:])
    return TensorType(x.dtype, shape, (*x.strides[:first], *(0 for _ in result), *x.strides[after:]), x.device)


INDEXED = Out(
    like("self"),
    ShapeRule(
        "shape(self) with broadcast(indices) for the dimensions that they index, in front if these are not next "
        "to each other",
        lambda args: _indexed(args).shape,
    ),
    LayoutRule(
        "elementwise order of the dimensions as self is read",
        lambda args, shape: (
            contiguous_strides(shape) if args["self"].numel == 0 else elementwise_strides([_indexed(args)], shape)
        ),
    ),
)


def changed_copy(name: str = "self") -> Out:
    """A copy of ``name``, changed in places."""
    return Out(like(name), shape_of(name), preserved(name))


def spanned(name: str = "self") -> LayoutRule:
    """The strides of ``name``, gaps included, unless its elements overlap."""

    def of(args: Args, shape: Shape) -> Sequence[Dim]:
        x = args[name]
        overlaps = any(s == 0 and n != 1 for n, s in zip(x.shape, x.strides, strict=True))
        return elementwise_strides([x], shape) if overlaps and not is_dense(x) else x.strides

    return LayoutRule(f"strides({name})", of)


def promoted_list(name: str) -> DtypeRule:
    """The common dtype of a list of tensors."""
    return DtypeRule(f"promote({name})", lambda args: promote(args[name]))
