"""Reads from and writes to places that are data: gathering, scattering, indexing, searching."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, REALS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import UNORDERED, Budget, Family, Places, Requires, Sample, Samples
from keel.spec.pytorch_kernels import EVERY_DEVICE, REDUCES_REALS
from keel.spec.rules import (
    DENSE,
    Args,
    DtypeRule,
    LayoutRule,
    Out,
    Shape,
    ShapeRule,
    canonical,
    like,
    number,
    shape_of,
)
from keel.spec.rules_linalg import column_major_strides
from keel.spec.rules_shape import INDEXED, changed_copy
from keel.spec.samples import drawn, specials
from keel.spec.samples_shape import indices, swapped
from keel.spec.unspecified import out_of_order
from keel.types import TensorType, contiguous_strides

aten = torch.ops.aten
family = Family("indexing")
Tensor = torch.Tensor

TAGS = frozenset({"indexing"})
SAME = like("self")
BITS = "Elements keep their bits."
INSIDE = "Indices are not negative and lie inside; others are an error that an implementation may leave unnoticed."
_LAST = Clause("Where indices are equal, one of their elements is kept; which one is not specified.", About.TIES)
_KEEPS = "Places without an index keep the operand's elements."
EXACT = {d: Budget(ulps=0) for d in ALL}
SUMS = {d: Budget(times=2.0) for d in ALL}
_MOVES = Numerics(results=Results.MOVED)


# -- along one dimension ----------------------------------------------------------------------------------------------

SHAPES: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (
    ((), 0, ()),
    ((1,), 0, (1,)),
    ((7,), -1, (4,)),
    ((7,), 0, (0,)),
    ((3, 5), 0, (2, 5)),
    ((3, 5), 1, (3, 8)),
    ((3, 5), -1, (2, 4)),
    ((4, 1, 3), 0, (6, 1, 2)),
    ((2, 0, 3), 2, (2, 0, 1)),
)
"""Sizes of an operand, a dimension, and sizes of the indices into it."""


def _gathers(dtype: torch.dtype) -> Iterator[Sample]:
    for shape, dim, picked in SHAPES:
        x, below = drawn(dtype, *shape), (shape or (1,))[dim]
        yield Sample((x, dim, indices(below, *picked)))
        yield Sample((swapped(x) if shape else x, dim, indices(below, *picked, seed=1).to(torch.int32)))


def _fits(args: Args, source: str = "index") -> bool:
    x, index = args["self"], args[source]
    if not isinstance(index, TensorType) or index.numel == 0:
        return True
    if max(x.rank, 1) != max(index.rank, 1):
        return False
    at = canonical(args["dim"], x.rank)
    pairs = enumerate(zip(index.shape, x.shape, strict=False))
    return all(not isinstance(n, int) or not isinstance(m, int) or n <= m for d, (n, m) in pairs if d != at)


FITS = Requires(
    "index-fits", "index has the operand's rank, and no more elements than it along the other dimensions.", _fits
)


def _covers(args: Args) -> bool:
    index, src = args["index"], args.get("src")
    return (
        not isinstance(src, TensorType)
        or index.numel == 0
        or all(
            not isinstance(n, int) or not isinstance(m, int) or n <= m
            for n, m in zip(index.shape, src.shape, strict=False)
        )
    )


COVERS = Requires("source-fits", "src has at least the sizes of index.", _covers)
family.primitive(
    "gather",
    "gather.default",
    doc="The elements at given indices along a dimension.",
    clauses=(
        BITS,
        "Element i of the result is the operand's at i, with index[i] as the coordinate along dim.",
        INSIDE,
        Clause("A scalar counts as one element.", About.SCALAR),
    ),
    out=(Out(SAME, shape_of("index"), DENSE),),
    requires=(FITS,),
    dtypes=ALL,
    samples=_gathers,
    tags=TAGS,
    places=Places("self"),
    budget=EXACT,
    numerics=_MOVES,
)


def _scatters(*reductions: str, distinct: bool = False, **keywords: Any) -> Samples:
    """``op(x, dim, index, src)`` for every reduction; no index comes twice if they are to be ``distinct``."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for shape, dim, picked in SHAPES:
            x, below = drawn(dtype, *shape), (shape or (1,))[dim]
            if distinct and picked and picked[dim] > below:
                continue
            index = indices(below, *picked)
            if distinct and picked:
                index = (
                    torch.arange(picked[dim])
                    .reshape([-1 if d == dim % len(picked) else 1 for d in range(len(picked))])
                    .expand(picked)
                )
            src = drawn(dtype, *picked, seed=1)
            yield Sample((x, dim, index, src, *reductions[:1]), keywords)
            for reduction in reductions[1:]:
                yield Sample((x, dim, index, src, reduction), keywords)
            yield Sample(
                (swapped(x) if shape else x, dim, index, drawn(dtype, *picked, seed=2), *reductions[:1]), keywords
            )

    return samples


PICKED = Places(count=shape_of("index"))
_FREELY = "The order of additions is not specified, and in float32 they may treat subnormal numbers as 0."
COPIED = Out(SAME, shape_of("self"), DENSE)
family.primitive(
    "scatter",
    "scatter.src",
    "scatter.value",
    doc="Elements written to given indices along a dimension.",
    clauses=(
        BITS,
        "Element i of src, or value, is written at i, with index[i] as the coordinate along dim.",
        _KEEPS,
        _LAST,
        INSIDE,
    ),
    out=(COPIED,),
    requires=(FITS, COVERS),
    dtypes=ALL,
    samples=_scatters(distinct=True),
    tags=TAGS,
    places=PICKED,
    budget=EXACT,
    numerics=_MOVES,
    libraries=EVERY_DEVICE,
)
family.primitive(
    "scatter_add",
    "scatter_add.default",
    doc="Elements added at given indices along a dimension.",
    clauses=(
        "Element i of src is added at i, with index[i] as the coordinate along dim; all elements for one place are "
        "added.",
        _KEEPS,
        Clause("Integers wrap around, and bools give whether one is true.", About.INTEGER_EDGE | About.INTEGRAL),
        _FREELY,
        INSIDE,
    ),
    out=(COPIED,),
    requires=(FITS, COVERS),
    dtypes=ALL,
    samples=_scatters(),
    tags=TAGS | UNORDERED,
    places=PICKED,
    budget=SUMS,
    numerics=Numerics(results=Results.SUMS),
    libraries=EVERY_DEVICE,
)
family.primitive(
    "scatter_reduce",
    "scatter_reduce.two",
    doc="Elements reduced into given indices along a dimension.",
    clauses=(
        Clause(
            "reduce is sum, prod, mean, amax or amin over all elements of src that go to a place, and with "
            "include_self over the operand's too.",
            parameters=("include_self", "reduce"),
        ),
        _KEEPS,
        Clause("A mean of integers is rounded towards minus infinity.", About.INTEGER),
        Clause("NaN among the elements reduced gives NaN.", About.NONFINITE),
        "The order of the reduction is not specified, and sums and means in float32 may treat subnormal numbers as 0.",
        INSIDE,
    ),
    out=(COPIED,),
    requires=(FITS, COVERS),
    dtypes=REALS,
    samples=_scatters("sum", "prod", "mean", "amax", "amin", include_self=False),
    tags=TAGS | UNORDERED,
    places=PICKED,
    budget=SUMS,
    libraries=EVERY_DEVICE,
    cuda=REDUCES_REALS,
)


# -- by lists of indices ----------------------------------------------------------------------------------------------


def _places(dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, list[torch.Tensor | None]]]:
    yield specials(dtype), [indices(len(specials(dtype)), 4)]
    yield drawn(dtype, 7), [indices(7, 2, 3, negative=True)]
    yield drawn(dtype, 1), [torch.tensor(0)]
    for x in (drawn(dtype, 3, 4, 5), swapped(drawn(dtype, 3, 4, 5)), drawn(dtype, 3, 4, 5).permute(1, 2, 0)):
        yield x, [None, indices(x.shape[1], 2, negative=True)]
        yield x, [indices(x.shape[0], 2, 1), indices(x.shape[1], 3)]
        yield x, [indices(x.shape[0], 2), None, indices(x.shape[2], 2)]
        yield x, [None, None, indices(x.shape[2], 0)]
    yield drawn(dtype, 2, 3, 4, 5).to(memory_format=torch.channels_last), [None, indices(3, 2), indices(4, 6, 2)]
    yield drawn(dtype, 2, 0, 3), [indices(2, 3), None, indices(3, 3).to(torch.int32)]


def _reads(dtype: torch.dtype) -> Iterator[Sample]:
    for x, at in _places(dtype):
        yield Sample((x, at))


def _puts(dtype: torch.dtype) -> Iterator[Sample]:
    for i, (x, at) in enumerate(_places(dtype)):
        sizes = aten.index.Tensor(x, at).shape
        yield Sample((x, at, drawn(dtype, *sizes, seed=i), True))
        yield Sample((x, at, drawn(dtype, *sizes[-1:] if sizes[-1:] else (), seed=i), True))


def _indexable(args: Args) -> bool:
    indices = [i for i in args["indices"] if i is not None]
    return (
        bool(indices)
        and sum(i.rank if i.dtype in (torch.bool, torch.uint8) else 1 for i in indices)
        + sum(i is None for i in args["indices"])
        <= args["self"].rank
    )


INDEXABLE = Requires("index-count", "There is an index, and no more of them than dimensions.", _indexable)
family.primitive(
    "index",
    "index.Tensor",
    "_unsafe_index.Tensor",
    doc="The elements at places given by one index per dimension.",
    clauses=(
        BITS,
        Clause("The indices broadcast to the sizes of the places; None takes the whole dimension.", About.BROADCAST),
        "Negative indices count from the end.",
        "The places' dimensions stand where the indexed ones stood, in front if None stood between these.",
        Clause(
            "A mask (bool or uint8) is as many indices as it has dimensions: those of its true elements, in "
            "row-major order.",
            About.BOOL,
        ),
        Clause("An index outside is an error; _unsafe_index leaves it unnoticed.", About.OUTSIDE),
    ),
    out=(INDEXED,),
    requires=(INDEXABLE,),
    dtypes=ALL,
    samples=_reads,
    tags=TAGS,
    places=Places("self"),
    sized_by="masks",
    budget=EXACT,
    numerics=_MOVES,
)
family.primitive(
    "index_put",
    "index_put.default",
    "_unsafe_index_put.default",
    doc="The operand with elements written at places given by one index per dimension.",
    clauses=(
        Clause("values broadcast to the sizes that index would give.", About.BROADCAST),
        _KEEPS,
        _LAST,
        Clause(f"With accumulate, all values for one place are added. {_FREELY}", parameters=("accumulate",)),
        "Negative indices count from the end.",
        Clause("An index outside is an error; _unsafe_index_put leaves it unnoticed.", About.OUTSIDE),
    ),
    out=(changed_copy(),),
    requires=(INDEXABLE,),
    dtypes=ALL,
    samples=_puts,
    tags=TAGS | UNORDERED,
    places=Places(count=INDEXED.shape),
    budget=SUMS,
    libraries=EVERY_DEVICE,
)


# -- searching --------------------------------------------------------------------------------------------------------


def _searches(dtype: torch.dtype) -> Iterator[Sample]:
    rows, x = drawn(dtype, 3, 6).sort(-1)[0], drawn(dtype, 3, 4, seed=1)
    for right in (False, True):
        yield Sample((rows, x), {"right": right})
        yield Sample((rows[0].contiguous(), swapped(x)), {"right": right, "out_int32": True})
    yield Sample((rows[0].contiguous(), drawn(dtype)))
    yield Sample((rows[0].contiguous(), specials(dtype)))
    yield Sample((rows[0, :0].contiguous(), x))
    yield Sample((rows, x[:, :0]))
    yield Sample(
        (rows.flip(-1).contiguous(), x), {"sorter": torch.arange(5, -1, -1).expand(3, 6).contiguous(), "side": "right"}
    )


def _rows(args: Args) -> bool:
    sequence, x = args["sorted_sequence"], args["self"]
    return sequence.rank == 1 or (
        sequence.rank == x.rank
        and all(
            a == b or not isinstance(a, int) or not isinstance(b, int)
            for a, b in zip(sequence.shape[:-1], x.shape[:-1], strict=True)
        )
    )


def halved(name: str) -> ShapeRule:
    """A step for each halving of a row of ``name``."""

    def of(args: Args) -> Sequence[Any]:
        row, x = args[name].shape[-1:], args["self"]
        steps = [n.bit_length() for n in row if isinstance(n, int)]
        return (*x.shape, *steps) if isinstance(x, TensorType) else steps

    return ShapeRule(f"shape(self), and a step for each halving of {name}", of)


PLACE_DTYPE = DtypeRule(
    "int32 if out_int32, else int64", lambda args: torch.int32 if args["out_int32"] else torch.int64
)
family.primitive(
    "searchsorted",
    "searchsorted.Tensor",
    doc="Where elements would go in a sorted sequence.",
    no_loops="It searches, with a number of steps that depends on data.",
    clauses=(
        Clause(
            "The result is how many of the sequence's elements are less than the element, or with right (side "
            "right) not greater.",
            parameters=("right",),
        ),
        Clause("NaN goes to the end.", About.NONFINITE),
        Clause("sorter gives the order in which the sequence is sorted.", parameters=("sorter",)),
        Clause(
            "For a sequence that is not sorted or has NaN, the result is not specified, but lies between 0 and its "
            "length.",
            About.NONFINITE,
        ),
        "A sequence of one dimension serves all elements; one of more has a row for each row of them.",
    ),
    out=(Out(PLACE_DTYPE, shape_of("self"), DENSE),),
    requires=(
        Requires("sequence-fits", "The sequence has one dimension, or the elements' sizes but for the last.", _rows),
    ),
    dtypes=REALS,
    samples=_searches,
    tags=TAGS,
    places=Places("sorted_sequence", halved("sorted_sequence")),
    budget=EXACT,
    unspecified=out_of_order,
    libraries=EVERY_DEVICE,
)


def _statics(dtype: torch.dtype) -> Iterator[Sample]:
    for x in (specials(dtype), drawn(dtype, 3, 4), swapped(drawn(dtype, 3, 4)), drawn(dtype, 2, 0), drawn(dtype)):
        for size in (0, 1, 20):
            yield Sample((x,), {"size": size, "fill_value": -7})


def _rows_or_columns(args: Args, shape: Shape) -> Shape:
    rows = args["self"].device.type in ("cpu", "mps", "xpu")
    return contiguous_strides(shape) if rows else column_major_strides(shape)


family.primitive(
    "nonzero_static",
    "nonzero_static.default",
    doc="The indices of the first size elements that are not zero.",
    no_loops="The place of each result depends on all elements before it.",
    clauses=(
        Clause(
            "Each element that is not zero has a row of indices, in row-major order; NaN is not zero.", About.NONFINITE
        ),
        "Rows without an element have fill_value throughout.",
        Clause("A scalar gives rows without indices.", About.SCALAR),
    ),
    out=(
        Out(
            DtypeRule("int64", lambda args: torch.int64),
            ShapeRule("[size, rank(self)]", lambda args: (number(args["size"]), args["self"].rank)),
            LayoutRule("row-major on CPU, MPS and XPU, column-major on other devices", _rows_or_columns),
        ),
    ),
    requires=(
        Requires(
            "size-not-negative",
            "size is 0 or more.",
            lambda args: not isinstance(args["size"], int) or args["size"] >= 0,
        ),
    ),
    dtypes=ALL,
    samples=_statics,
    tags=TAGS,
    budget=EXACT,
    numerics=Numerics(steps=True),
)
