"""Views: the operand's elements with other sizes and strides, in its memory. Their strides are exact.

In a functional graph a view is a value like any other; that it may share memory is a fact about the result, never an
effect. ``as_strided`` is a primitive: what it reads depends on strides and not on values alone, so nothing simpler says
it. Its normal form counts from where the operand begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause, Stated
from keel.spec.dtype_groups import ALL, FLOAT8
from keel.spec.numerics import UNSTATED, Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample, Samples
from keel.spec.rules import Args, Out, canonical
from keel.spec.rules_shape import (
    BITCAST,
    DIAGONAL,
    EXPANDED,
    PERMUTED,
    RESHAPED,
    SAME,
    SELECTED,
    SLICED,
    SQUEEZED,
    STRIDED,
    UNSQUEEZED,
    WINDOWS,
)
from keel.spec.samples import drawn
from keel.spec.samples_shape import each, shaped, swapped
from keel.types import product

aten = torch.ops.aten
family = Family("views")
Tensor = torch.Tensor

TAGS = frozenset({"view"})
EVERY = (*ALL, *FLOAT8)
_BITS = "Elements keep their bits."


def _declare(
    name: str, *overloads: str, doc: str, out: Out, samples: Samples, clauses: Stated = (), **more: Any
) -> None:
    family.primitive(
        name,
        *overloads,
        doc=doc,
        clauses=(_BITS, *clauses),
        out=(out,),
        samples=samples,
        tags=TAGS,
        **{
            "dtypes": ALL,
            "budget": {d: Budget(ulps=0) for d in EVERY},
            "numerics": Numerics(results=Results.MOVED),
            **more,
        },
    )


def _same_count(args: Args) -> bool:
    known_sizes = [n for n in args["size"] if isinstance(n, int)]
    if len(known_sizes) != len(args["size"]) or not isinstance(args["self"].numel, int):
        return True
    if known_sizes.count(-1) > 1 or any(n < -1 for n in known_sizes):
        return False
    rest = int(product(n for n in known_sizes if n != -1))
    return args["self"].numel == rest if -1 not in known_sizes else rest != 0 and int(args["self"].numel) % rest == 0


def _reshapes(dtype: torch.dtype) -> Iterator[Sample]:
    cases: tuple[tuple[tuple[int, ...], list[int]], ...] = (
        ((), [1, 1]),
        ((1,), []),
        ((6,), [2, 3]),
        ((2, 3, 4), [-1]),
        ((2, 3, 4), [6, 4]),
        ((4, 6, 1), [2, 2, -1, 3, 1]),
        ((2, 0, 3), [3, 0]),
        ((1, 5, 1), [5]),
    )
    for shape, size in cases:
        yield Sample((drawn(dtype, *shape), size))
    yield Sample((drawn(dtype, 4, 6).t(), [2, 3, 2, 2]))
    yield Sample((drawn(dtype, 4, 6).t(), [6, 1, -1]))
    yield Sample((drawn(dtype, 8, 6)[::2], [4, 2, 3]))
    yield Sample((drawn(dtype, 4, 1).expand(4, 6), [2, 2, 3, 2]))
    yield Sample((drawn(dtype, 2, 3, 4, 5).to(memory_format=torch.channels_last), [2, 3, -1]))
    yield Sample((drawn(dtype, 2, 3, 4, 8)[..., ::2], [6, 16]))
    yield Sample((drawn(dtype, 5, 1, 4)[:, :, :3], [5, 3]))


_declare(
    "reshape",
    "view.default",
    "_unsafe_view.default",
    doc="Other sizes for the same elements in row-major order.",
    clauses=(
        "The element with row-major index i of the result is that of the operand.",
        "One size may be -1: it follows from the others.",
        "The result shares the operand's memory if strides can express it; if not, view raises.",
    ),
    requires=(
        Requires("same-numel", "The sizes have the product of the operand's, at most one being -1.", _same_count),
    ),
    out=RESHAPED,
    samples=_reshapes,
    row_major=("view", "_unsafe_view"),
)


def _orders(dtype: torch.dtype) -> Iterator[Sample]:
    for x in shaped(dtype):
        yield Sample((x, list(range(x.dim()))[::-1]))
        yield Sample((x, list(range(-x.dim(), 0))))
        if x.dim() > 2:
            yield Sample((x, [1, -1, *(d for d in range(x.dim() - 1) if d != 1)]))


_declare(
    "permute",
    "permute.default",
    doc="The dimensions in another order.",
    clauses=("Dimension i of the result is dimension dims[i] of the operand.",),
    requires=(
        Requires(
            "dims-permutation",
            "dims names every dimension once.",
            lambda args: (
                sorted(canonical(d, args["self"].rank) for d in args["dims"]) == list(range(args["self"].rank))
            ),
        ),
    ),
    out=PERMUTED,
    samples=_orders,
)


def _fits(args: Args) -> bool:
    x, target = args["self"], args["size"]
    new = len(target) - x.rank
    pairs = zip(target[max(new, 0) :], x.shape, strict=False)
    return (
        new >= 0
        and -1 not in target[:new]
        and all(not isinstance(w, int) or not isinstance(n, int) or w in (-1, n) or n == 1 for w, n in pairs)
    )


_declare(
    "expand",
    "expand.default",
    doc="Sizes of 1 repeated, and new dimensions in front.",
    clauses=(
        Clause("A size of -1 keeps the operand's.", parameters=("size",)),
        "All repeats are the same element of memory: the stride is 0.",
        "The size repeated to may be 0.",
    ),
    requires=(
        Requires(
            "sizes-expand",
            "Each size is the operand's or -1, unless the operand's is 1; new dimensions have sizes of 0 or more.",
            _fits,
        ),
    ),
    out=EXPANDED,
    samples=each(
        ((), ([],)),
        ((), ([2, 3],)),
        ((1,), ([4],)),
        ((1,), ([0],)),
        ((1,), ([1],)),
        ((3,), ([2, -1],)),
        ((3, 1, 4), ([3, 5, 4],)),
        ((3, 1, 4), ([2, -1, 5, -1],)),
        ((1, 1), ([-1, 1],)),
        ((2, 0, 1), ([2, 0, 3],)),
    ),
)


def _squeezes(dtype: torch.dtype) -> Iterator[Sample]:
    for x in shaped(dtype):
        yield Sample((x, list(range(x.dim()))))
        yield Sample((x, []))
        if x.dim():
            yield Sample((x, [-1]))
    yield Sample((drawn(dtype, 1, 4, 1, 1), [0, -1]))
    yield Sample((drawn(dtype, 4, 1, 3).transpose(0, 2), [1]))


_declare(
    "squeeze",
    "squeeze.dims",
    "squeeze.dim",
    doc="Without those of the named dimensions whose size is 1.",
    clauses=("A named dimension of another size is kept.",),
    out=SQUEEZED,
    samples=_squeezes,
)


def _unsqueezes(dtype: torch.dtype) -> Iterator[Sample]:
    for x in shaped(dtype):
        for dim in {0, x.dim(), -1, -x.dim() - 1}:
            yield Sample((x, dim))


_declare(
    "unsqueeze",
    "unsqueeze.default",
    doc="With one more dimension, of size 1.",
    clauses=(Clause("dim counts in the result: -1 puts it last.", parameters=("dim",)),),
    requires=(
        Requires(
            "dim-in-range",
            "dim is one of the result's dimensions.",
            lambda args: -args["self"].rank - 1 <= args["dim"] <= args["self"].rank,
        ),
    ),
    out=UNSQUEEZED,
    samples=_unsqueezes,
    new_dims=1,
)

END = 2**63 - 1


def _ranked(name: str = "dim", scalars: bool = False) -> Requires:
    def holds(args: Args) -> bool:
        rank = args["self"].rank
        return (-rank <= args[name] < rank) if rank or not scalars else args[name] in (-1, 0)

    return Requires(f"{name}-in-range", f"{name} is one of the operand's dimensions.", holds)


_declare(
    "slice",
    "slice.Tensor",
    doc="Every step-th element along one dimension, from start up to end.",
    clauses=(
        "Negative bounds count from the end.",
        "Bounds outside are moved to the nearest one inside.",
        Clause(
            "end is exclusive; if it is not greater than start, there are no elements.",
            About.EMPTY,
            parameters=("end",),
        ),
        "No start means the first element, no end or 2**63 - 1 the last.",
    ),
    requires=(
        _ranked(),
        Requires(
            "step-positive", "step is 1 or more.", lambda args: not isinstance(args["step"], int) or args["step"] > 0
        ),
    ),
    out=SLICED,
    samples=each(
        ((7,), (0, 1, 4)),
        ((7,), (0, -3, END)),
        ((7,), (-1, 2, -1)),
        ((7,), (0, None, None, 3)),
        ((7,), (0, 5, 2)),
        ((1,), (0, 3, 9)),
        ((1,), (0, -4, 1)),
        ((8, 3), (0, 1, END, 2)),
        ((3, 8), (-1, 1, 6, 4)),
        ((2, 0, 3), (1, 0, 2)),
        ((5, 1, 4), (1, 0, 1)),
    ),
)


def _within(args: Args) -> bool:
    n = args["self"].shape[canonical(args["dim"], args["self"].rank)]
    return not isinstance(n, int) or not isinstance(args["index"], int) or -n <= args["index"] < n


_declare(
    "select",
    "select.int",
    doc="What stands at one index of a dimension, without that dimension.",
    clauses=("A negative index counts from the end.",),
    requires=(_ranked(), Requires("index-in-range", "The index lies within the dimension.", _within)),
    out=SELECTED,
    samples=each(
        ((7,), (0, 3)),
        ((1,), (-1, -1)),
        ((8, 3), (0, -8)),
        ((2, 3, 4), (1, 2)),
        ((2, 3, 4), (-1, 0)),
        ((2, 0, 3), (0, 1)),
    ),
)
_declare(
    "diagonal",
    "diagonal.default",
    doc="The elements for which two dimensions have equal indices.",
    clauses=(
        Clause("offset is the second index less the first.", parameters=("offset",)),
        "The diagonal is the last dimension of the result.",
        Clause("A diagonal that lies outside has no elements.", About.EMPTY),
    ),
    requires=(
        Requires(
            "dims-distinct",
            "dim1 and dim2 are two dimensions of the operand.",
            lambda args: (
                args["self"].rank > 1
                and (canonical(args["dim1"], args["self"].rank) != canonical(args["dim2"], args["self"].rank))
            ),
        ),
    ),
    out=DIAGONAL,
    samples=each(
        ((3, 3), ()),
        ((5, 5), (1,)),
        ((5, 5), (-2,)),
        ((1, 4), (9,)),
        ((3, 5, 3), (0, 0, -1)),
        ((2, 4, 3, 4), (-1, 3, 1)),
        ((2, 0, 3), (0, 1, 2)),
        ((1, 1), (-1,)),
    ),
)
_declare(
    "sliding_window",
    "unfold.default",
    doc="Windows along one dimension, which become the last dimension.",
    clauses=(
        "Window i has the elements from i * step on.",
        "There are as many windows as fit; elements left over are not taken.",
        Clause("A scalar has one window of at most one element.", About.SCALAR),
    ),
    requires=(
        _ranked("dimension", scalars=True),
        Requires(
            "window-fits",
            "A window fits into the dimension.",
            lambda args: (
                not isinstance(args["size"], int)
                or not isinstance(
                    n := (args["self"].shape or (1,))[canonical(args["dimension"], args["self"].rank)], int
                )
                or 0 <= args["size"] <= n
            ),
        ),
        Requires(
            "step-positive", "step is 1 or more.", lambda args: not isinstance(args["step"], int) or args["step"] > 0
        ),
    ),
    out=WINDOWS,
    samples=each(
        ((), (0, 1, 1)),
        ((7,), (0, 3, 2)),
        ((7,), (-1, 1, 1)),
        ((1,), (0, 1, 5)),
        ((7,), (0, 0, 1)),
        ((4, 8), (1, 4, 4)),
        ((8, 4), (0, 2, 3)),
        ((2, 0, 3), (0, 2, 1)),
        ((3, 1, 4), (-1, 3, 1)),
    ),
)


def _bitcasts(dtype: torch.dtype) -> Iterator[Sample]:
    by_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.float64, 16: torch.complex128}
    for shape in ((16,), (3, 32), (2, 0, 16), (5, 1, 16)):
        for new in by_size.values():
            x = drawn(dtype, *shape)
            if x.element_size() <= new.itemsize or not dtype.is_complex:
                yield Sample((x, new))
    yield Sample((drawn(dtype, 4, 6).t(), by_size[dtype.itemsize]))
    yield Sample((swapped(drawn(dtype, 4, 3, 16)).transpose(0, 2)[..., :4].transpose(1, 2), by_size[dtype.itemsize]))
    yield Sample((drawn(dtype), by_size[dtype.itemsize]))


def _castable(args: Args) -> bool:
    old, new, x = args["self"].dtype.itemsize, args["dtype"].itemsize, args["self"]
    return old == new or (bool(x.rank) and (not isinstance(x.shape[-1], int) or x.shape[-1] * old % new == 0))


_declare(
    "bitcast",
    "view.dtype",
    doc="The same bytes read as elements of another dtype.",
    clauses=(
        "Bytes keep their places.",
        "Elements of another size than the operand's change the size of the last dimension.",
    ),
    requires=(
        Requires(
            "whole-elements",
            "The last dimension's bytes make whole elements; a scalar's dtype has the same size.",
            _castable,
        ),
    ),
    out=BITCAST,
    samples=_bitcasts,
    numerics=UNSTATED,
    row_major=True,
)
_declare(
    "alias",
    "alias.default",
    "detach.default",
    "lift_fresh.default",
    doc="The operand.",
    out=SAME,
    samples=each(((), ()), ((1,), ()), ((3, 4), ()), ((2, 0, 3), ())),
)


def from_the_start(x: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Tensor:
    """The call that counts from where the operand begins; only for a dense operand, from where it begins or later."""
    if storage_offset is None:
        return NotImplemented
    start = storage_offset - x.storage_offset()
    if start != 0:
        if not x.is_contiguous() or start < 0:
            return NotImplemented
        x = aten.slice.Tensor(aten.view.default(x, [x.numel()]), 0, start)
    return aten.as_strided.default(x, size, stride)


_declare(
    "as_strided",
    "as_strided.default",
    doc="The operand's memory with other sizes and strides.",
    clauses=(
        "Element i of the result lies at storage_offset + sum of i * stride in the operand's memory; storage_offset "
        "defaults to where the operand begins.",
        "Elements may be taken more than once.",
        "Memory outside the operand's elements is not read.",
    ),
    decompose=from_the_start,
    numerics=UNSTATED,
    requires=(
        Requires(
            "strides-count",
            "There are as many strides as sizes.",
            lambda args: len(args["size"]) == len(args["stride"]),
        ),
        Requires(
            "strides-not-negative",
            "Strides are 0 or more.",
            lambda args: all(s >= 0 for s in args["stride"] if isinstance(s, int)),
        ),
    ),
    out=STRIDED,
    samples=each(
        ((12,), ([3, 2], [4, 1])),
        ((12,), ([5, 4], [1, 2], 3)),
        ((12,), ([], [])),
        ((3, 4), ([4, 3], [1, 4])),
        ((12,), ([0, 3], [2, 1])),
        ((2, 6), ([1, 5], [0, 0])),
    ),
    row_major=True,
)


# -- composites -------------------------------------------------------------------------------------------------------

family.composite(
    "transpose",
    "transpose.int",
    doc="Two dimensions swapped.",
    tags=TAGS,
    clauses=(Clause("For a scalar it is the identity.", About.SCALAR),),
)
family.composite(
    "t",
    "t.default",
    doc="A matrix transposed.",
    tags=TAGS,
    clauses=(Clause("For a scalar or vector it is the identity.", About.SCALAR),),
)
family.composite(
    "squeeze_all",
    "squeeze.default",
    doc="Without all dimensions of size 1.",
    tags=TAGS,
    clauses=("Dimensions of other sizes are kept.",),
)
family.composite(
    "reshape_alias",
    "_reshape_alias.default",
    doc="reshape, with the strides that it has.",
    tags=TAGS,
    clauses=("The elements are those of reshape.",),
    row_major=("_reshape_alias",),
)
