"""Tensors made of numbers: constants, progressions, memory without values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

import sympy
import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, FLOATS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.rules import (
    DENSE,
    Args,
    DtypeRule,
    LayoutRule,
    Out,
    Shape,
    ShapeRule,
    like,
    preserved,
    shape_of,
    sizes,
)
from keel.spec.rules import number as known
from keel.spec.samples import drawn, layouts, unary
from keel.types import Dim, SymType, contiguous_strides

aten = torch.ops.aten
family = Family("creation")

Tensor = torch.Tensor
CREATION = frozenset({"creation"})


def _kind(value: Any) -> torch.dtype:
    """The dtype that a number has by itself."""
    kind = {"int": int, "float": float, "bool": bool}[value.kind] if isinstance(value, SymType) else type(value)
    match kind.__name__:
        case "bool":
            return torch.bool
        case "int":
            return torch.int64
        case "complex":
            return torch.complex128 if torch.get_default_dtype() == torch.float64 else torch.complex64
    return torch.get_default_dtype()


SIZE = ShapeRule("size", lambda args: sizes(args["size"]))


def _constants(dtype: torch.dtype) -> Iterator[Sample]:
    for size in ([], [0], [3], [2, 1, 4]):
        yield Sample((size, 1), {"dtype": dtype})
    for value in (True, 7, 2.5, 1 + 2j, float("inf"), float("nan"), -0.0):
        yield Sample(([2, 3], value))


family.primitive(
    "full",
    "full",
    doc="Every element is fill_value.",
    clauses=(
        Clause(
            "fill_value is converted to the dtype: rounded to a float, towards zero to an integer, NaN to true.",
            About.NONFINITE,
            parameters=("fill_value",),
        ),
        "Without a dtype it is that of the number: bool, int64, the default float or its complex dtype.",
        "A number that an integer dtype cannot hold is an error.",
    ),
    out=(
        Out(
            DtypeRule("dtype or that of fill_value", lambda args: args["dtype"] or _kind(args["fill_value"])),
            SIZE,
            DENSE,
        ),
    ),
    dtypes=ALL,
    samples=_constants,
    budget={d: Budget(ulps=0) for d in ALL},
    tags=CREATION,
)


def _numbers(dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((1,), {"dtype": dtype})
    for value in (True, 7, 2.5):
        yield Sample((value,))


family.primitive(
    "scalar_tensor",
    "scalar_tensor",
    doc="A number as a tensor without dimensions.",
    clauses=("Without a dtype it is the default float.", "It is converted as full converts its fill_value."),
    out=(
        Out(
            DtypeRule("dtype or the default float", lambda args: args["dtype"] or torch.get_default_dtype()),
            ShapeRule("()", lambda args: ()),
            DENSE,
        ),
    ),
    dtypes=ALL,
    samples=_numbers,
    budget={d: Budget(ulps=0) for d in ALL},
    tags=CREATION,
)


def _progression_dtype(args: Args) -> torch.dtype:
    integral = all(_kind(args[n]) in (torch.int64, torch.bool) for n in ("start", "end", "step"))
    chosen: torch.dtype = args["dtype"] or (torch.int64 if integral else torch.get_default_dtype())
    return chosen


def _length(args: Args) -> tuple[Any]:
    """Of numbers in an integer dtype, of these as integers."""
    start, end, step = (known(args[n]) for n in ("start", "end", "step"))
    dtype = _progression_dtype(args)
    if not dtype.is_floating_point:
        start, end, step = (int(v) if isinstance(v, float) else v for v in (start, end, step))
    if all(isinstance(v, int) for v in (start, end, step)):
        return (-((start - end) // step),)
    if all(isinstance(v, int | float) for v in (start, end, step)):
        return (ceil((end - start) / step),)
    return (sympy.ceiling((end - start) * int(step) if step in (1, -1) else (end - start) / step),)


def _progressions(dtype: torch.dtype) -> Iterator[Sample]:
    for start, end, step in ((0, 5, 1), (0, 5, 2), (5, 0, -2), (3, 3, 1), (1, 2, 7)):
        if step > 0 or dtype != torch.uint8:
            yield Sample((start, end, step), {"dtype": dtype})
    yield from (Sample(args) for args in ((0, 4), (0.0, 1.0, 0.3), (0, 1, 0.1), (1.5, -2, -0.5), (True, 3)))


def _towards(args: Args) -> bool:
    start, end, step = (known(args[n]) for n in ("start", "end", "step"))
    if not all(isinstance(v, int | float) for v in (start, end, step)):
        return True
    return step != 0 and (end - start) * step >= 0


family.primitive(
    "iota",
    "arange.start_step",
    doc="start, start + step, start + 2 step and so on, before end.",
    clauses=(
        "Element i is start + i * step, rounded once; it is not summed up step by step.",
        "There are ceil((end - start) / step) elements; end is not among them.",
        "In an integer dtype the numbers are rounded towards zero first.",
        "Without a dtype it is int64 if all numbers are integers, else the default float.",
    ),
    out=(
        Out(
            DtypeRule("dtype or int64, or the default float if a number is a float", _progression_dtype),
            ShapeRule("(ceil((end - start) / step),)", _length),
            DENSE,
        ),
    ),
    requires=(Requires("step-leads-to-end", "step is not 0 and leads from start towards end.", _towards),),
    dtypes=(*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    samples=_progressions,
    budget={d: Budget(ulps=1) for d in (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)},
    tags=CREATION,
)


# -- memory -------------------------------------------------------------------------------------------


def _memory_dtype(args: Args) -> torch.dtype:
    own = args["self"].dtype if "self" in args else torch.get_default_dtype()
    return args["dtype"] or own


def _memory_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    if "stride" in args:
        return sizes(args["stride"])
    if "physical_layout" in args:
        return _ordered(shape, args["physical_layout"])
    match args.get("memory_format"):
        case torch.channels_last:
            return _ordered(shape, (0, 2, 3, 1))
        case torch.channels_last_3d:
            return _ordered(shape, (0, 2, 3, 4, 1))
        case torch.contiguous_format:
            return contiguous_strides(shape)
    return preserved("self").of(args, shape) if "self" in args and "size" not in args else contiguous_strides(shape)


def _ordered(shape: Shape, order: Sequence[int]) -> Sequence[Dim]:
    """Strides that make the dimensions in ``order`` row-major."""
    packed = contiguous_strides(tuple(shape[d] for d in order))
    return [packed[order.index(d)] for d in range(len(shape))]


def _memories(dtype: torch.dtype) -> Iterator[Sample]:
    for size in ([], [0], [3], [2, 1, 4]):
        yield Sample((size,), {"dtype": dtype})
    yield Sample(([2, 3],))
    yield Sample(([2, 3, 4, 5],), {"memory_format": torch.channels_last, "dtype": dtype})
    yield Sample(([2, 3, 4],), {"dtype": dtype, "physical_layout": [2, 0, 1]})
    yield Sample(([2, 3],), {"dtype": dtype, "stride": [1, 5]})
    for x in layouts(dtype):
        yield Sample((x,))
        yield Sample((x, [2, 3]), {"dtype": torch.int64})
        yield Sample((x, [2, 3], [1, 2]))
    yield Sample((drawn(dtype, 2, 3, 4, 5),), {"memory_format": torch.channels_last})


MEMORY = ShapeRule("size or shape(self)", lambda args: sizes(args["size"]) if "size" in args else args["self"].shape)
family.primitive(
    "empty",
    "empty.memory_format",
    "empty_permuted",
    "empty_strided",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    doc="Memory without values.",
    clauses=("What the elements are is not specified, nor whether two reads of one give the same.",),
    out=(
        Out(
            DtypeRule("dtype, or that of self, or the default float", _memory_dtype),
            MEMORY,
            LayoutRule("stride, physical_layout or memory_format, or preserve(self), or row-major", _memory_strides),
        ),
    ),
    dtypes=ALL,
    samples=_memories,
    budget={d: Budget() for d in ALL},
    tags=CREATION,
    numerics=Numerics(results=Results.UNINITIALIZED),
)
family.primitive(
    "constant",
    "lift_fresh_copy",
    doc="A tensor that the program holds, as a value of its own.",
    clauses=(Clause("Every run gives the same elements, NaN and the signs of zeros too.", About.NONFINITE),),
    out=(Out(like("self"), shape_of("self"), DENSE),),
    dtypes=ALL,
    samples=unary,
    budget={d: Budget(ulps=0) for d in ALL},
    tags=CREATION,
)
