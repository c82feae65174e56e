"""Reductions: one value for all elements along some dimensions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, BOOLS, NUMBERS, REALS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires
from keel.spec.ops.statistics import IN_FLOAT32, accurate, all_dims, std
from keel.spec.rules import (
    DENSE,
    INT64,
    Args,
    DtypeRule,
    Out,
    Shape,
    ShapeRule,
    canonicals,
    chosen,
    fixed,
    like,
    reduced,
    summed,
)
from keel.spec.samples_shape import many_dims, one_dim

aten = torch.ops.aten
family = Family("reduction")
Tensor = torch.Tensor

TAGS = frozenset({"reduction"})
_CHOOSES = Numerics(free_zero_sign=True, results=Results.CHOSEN)
SAME = like("self")
TOTAL = chosen(summed(SAME))
OVER = reduced()
_ALL = "Where no dimension is named, all are reduced."
_KEEP = Clause("With keepdim the dimensions reduced stay, with size 1.", parameters=("keepdim",))
_NAN = Clause("NaN among the elements gives NaN.", About.NONFINITE)
_TIES = Clause(
    "Among equal extremes the index is that of the first; NaN is an extreme, and the first NaN wins.",
    About.NONFINITE | About.TIES,
)


def _sized(args: Args) -> bool:
    shape = args["self"].shape
    return not shape or all(shape[d] != 0 for d in canonicals(args.get("dim"), len(shape)))


SIZED = Requires("reduced-nonempty", "Every dimension reduced has at least one element.", _sized)


family.primitive(
    "sum",
    "sum.dim_IntList",
    "sum.default",
    doc="The sum of the elements.",
    clauses=(
        _ALL,
        _KEEP,
        Clause("No elements give 0.", About.EMPTY),
        _NAN,
        Clause("Infinities of both signs give NaN.", About.NONFINITE),
        Clause(
            "Integers and bools are summed in int64 unless dtype says otherwise, and wrap around.",
            About.INTEGER_EDGE | About.INTEGRAL,
        ),
        Clause("With dtype the elements are converted to it first.", parameters=("dtype",)),
        Clause("16-bit floats are summed in float32 or better and rounded once.", About.HALF | About.FLOAT32),
        Clause("The order of summation is not specified.", About.UNSPECIFIED),
    ),
    out=(Out(TOTAL, OVER, DENSE),),
    dtypes=ALL,
    samples=many_dims(),
    tags=TAGS,
    budget={d: Budget(times=2.0) for d in ALL},
    numerics=Numerics(free_zero_sign=True, results=Results.SUMS, one_term_exact=True),
)
family.primitive(
    "prod",
    "prod.dim_int",
    doc="The product of the elements along one dimension.",
    clauses=(
        _KEEP,
        Clause("No elements give 1.", About.EMPTY),
        _NAN,
        Clause("Zero times infinity gives NaN.", About.NONFINITE),
        Clause(
            "Integers and bools are multiplied in int64 unless dtype says otherwise, and wrap around.",
            About.INTEGER_EDGE | About.INTEGRAL,
        ),
        Clause("With dtype the elements are converted to it first.", parameters=("dtype",)),
        Clause("The order of multiplication is not specified.", About.UNSPECIFIED),
    ),
    out=(Out(TOTAL, OVER, DENSE),),
    dtypes=ALL,
    samples=one_dim(keepdim=True),
    tags=TAGS,
    budget={d: Budget(times=2.0) for d in ALL},
    numerics=Numerics(free_zero_sign=True),
)
for _name, _most, _zeros in (("amax", "greatest", "-0"), ("amin", "least", "+0")):
    family.primitive(
        _name,
        _name,
        doc=f"The {_most} element.",
        clauses=(_ALL, _KEEP, _NAN, Clause("For zeros of both signs the result is a zero of either sign.", About.ZERO)),
        out=(Out(SAME, OVER, DENSE),),
        requires=(SIZED,),
        dtypes=(*REALS, *BOOLS),
        samples=many_dims(empty=False),
        tags=TAGS,
        budget={d: Budget(ulps=0) for d in (*REALS, *BOOLS)},
        numerics=_CHOOSES,
    )


def _named(args: Args) -> Shape:
    """``reduced``, but that an empty list names no dimension."""
    return tuple(args["self"].shape) if args.get("dim") == [] else tuple(OVER.of(args))


ANY = DtypeRule(
    "uint8 for uint8, else bool", lambda args: torch.uint8 if args["self"].dtype == torch.uint8 else torch.bool
)
family.primitive(
    "any",
    "any.dims",
    "any.dim",
    "any.default",
    doc="Whether an element is not zero.",
    clauses=(
        Clause("dim None reduces all dimensions, a list without dimensions none.", About.SCALAR),
        _KEEP,
        Clause("No elements give false.", About.EMPTY),
        Clause("NaN counts as true, a zero of either sign as false.", About.NONFINITE | About.ZERO),
        Clause("For uint8 the result is uint8, 0 or 1.", About.UINT8),
    ),
    out=(Out(ANY, ShapeRule("reduce(self, dim, keepdim)", _named), DENSE),),
    dtypes=ALL,
    samples=many_dims(),
    tags=TAGS,
    budget={d: Budget(ulps=0) for d in ALL},
    numerics=Numerics(steps=True),
)
for _name, _most in (("argmax", "greatest"), ("argmin", "least")):
    family.primitive(
        _name,
        _name,
        doc=f"The index of the {_most} element.",
        clauses=(_TIES, "Without dim the index counts through all elements in row-major order.", _KEEP),
        out=(Out(INT64, OVER, DENSE),),
        requires=(SIZED,),
        dtypes=REALS,
        samples=one_dim(empty=False, keepdim=True),
        tags=TAGS,
        budget={d: Budget(ulps=0) for d in REALS},
    )
for _name, _overload, _most in (("max_with_index", "max.dim", "greatest"), ("min_with_index", "min.dim", "least")):
    family.primitive(
        _name,
        _overload,
        doc=f"The {_most} element along one dimension, and its index.",
        clauses=(_NAN, _TIES, _KEEP),
        out=(Out(SAME, OVER, DENSE), Out(INT64, OVER, DENSE)),
        requires=(SIZED,),
        dtypes=(*REALS, *BOOLS),
        samples=one_dim(empty=False, keepdim=True),
        tags=TAGS,
        budget={d: Budget(ulps=0) for d in (*REALS, *BOOLS)},
        numerics=_CHOOSES,
    )
family.primitive(
    "reduce_xor",
    "hash_tensor",
    doc="The exclusive or of the elements' bits, as uint64.",
    no_loops="It combines the bits of elements of any dtype.",
    clauses=(
        _ALL,
        "Floats are converted to float64 and integers to int64 first; their 64 bits count.",
        Clause("Equal elements cancel: the order of elements does not matter.", About.TIES),
        _KEEP,
        Clause("Zeros of both signs differ, and so do NaNs of different bits.", About.NONFINITE),
    ),
    out=(Out(fixed(torch.uint64), OVER, DENSE),),
    requires=(SIZED,),
    dtypes=(*REALS, *BOOLS),
    samples=many_dims(empty=False, keywords=True),
    tags=TAGS,
    budget={d: Budget(ulps=0) for d in (*REALS, *BOOLS)},
    numerics=Numerics(steps=True),
)


# -- composites -------------------------------------------------------------------------------------------------------


@family(
    "mean.dim",
    "mean.default",
    tags=TAGS,
    dtypes=NUMBERS,
    samples=many_dims(),
    clauses=(
        _ALL,
        _KEEP,
        Clause("No elements give NaN.", About.EMPTY),
        Clause("16-bit floats are summed and divided in float32, and rounded once.", About.HALF | About.FLOAT32),
    ),
)
def mean(
    x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """The sum of the elements over their number."""
    x = x if dtype is None else x.to(dtype)
    over = all_dims(x, None if dim is None else list(dim))
    total = aten.sum.dim_IntList(accurate(x), over, keepdim)
    return (total / _count(x, over)).to(x.dtype)


def _count(x: Tensor, dims: Sequence[int]) -> Any:
    return reduce(operator.mul, (x.shape[d] for d in dims), 1) if x.dim() else 1


@family(
    "std_mean.correction",
    tags=TAGS,
    clauses=("The results are those of std and of mean.", IN_FLOAT32),
    numerics=Numerics(updated_mean=True),
)
def std_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    over = None if dim is None else list(dim)
    return std(x, over, correction=correction, keepdim=keepdim), mean(x, over, keepdim)


@family("prod.default", tags=TAGS, clauses=("All dimensions are reduced, as prod reduces one.",))
def prod_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The product of all elements."""
    return aten.prod.dim_int(aten.reshape.default(x, [x.numel()]), 0, dtype=dtype)


@family("max.default", tags=TAGS, clauses=("All dimensions are reduced, as amax reduces.",))
def max_all(x: Tensor) -> Tensor:
    """The greatest of all elements."""
    return aten.amax.default(x)


@family("min.default", tags=TAGS, clauses=("All dimensions are reduced, as amin reduces.",))
def min_all(x: Tensor) -> Tensor:
    """The least of all elements."""
    return aten.amin.default(x)


@family(
    "all.dims",
    "all.dim",
    "all.default",
    tags=TAGS,
    clauses=(
        Clause("dim None reduces all dimensions, a list without dimensions none.", About.SCALAR),
        Clause("No elements give true.", About.EMPTY),
        Clause("NaN counts as true, a zero of either sign as false.", About.NONFINITE | About.ZERO),
        Clause("For uint8 the result is uint8, 0 or 1.", About.UINT8),
    ),
)
def all_(x: Tensor, dim: Sequence[int] | int | None = None, keepdim: bool = False) -> Tensor:
    """Whether no element is zero."""
    zero = aten.eq.Scalar(x, 0)
    over = [dim] if isinstance(dim, int) else dim
    result = aten.bitwise_not.default(aten.any.dims(zero, over, keepdim))
    return result.to(torch.uint8) if x.dtype == torch.uint8 else result


@family("aminmax.default", tags=TAGS, clauses=("The results are those of amin and of amax.",))
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The least and the greatest element."""
    over = list(range(x.dim())) if dim is None else [dim]
    return aten.amin.default(x, over, keepdim), aten.amax.default(x, over, keepdim)


@family(
    "count_nonzero.dim_IntList",
    "count_nonzero.default",
    tags=TAGS,
    clauses=(Clause("NaN counts, a zero of either sign does not.", About.NONFINITE | About.ZERO), _ALL),
)
def count_nonzero(x: Tensor, dim: Sequence[int] | int | None = None) -> Tensor:
    """How many elements are not zero."""
    over = all_dims(x, [dim] if isinstance(dim, int) else list(dim or []))
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), over)


@family(
    "trace.default",
    clauses=(
        "The sum is that of the elements with equal row and column.",
        Clause("Integers are summed in int64.", About.INTEGER),
    ),
)
def trace(x: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    return aten.sum.dim_IntList(aten.diagonal.default(x), [0])
