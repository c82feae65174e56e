"""Sorting, and what is read off a sorted tensor: order statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import BOOLS, REALS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.pytorch_kernels import EVERY_DEVICE, CudaKernel, differs
from keel.spec.rules import DENSE, INT64, Args, Out, canonical, like, preserved, shape_of
from keel.spec.rules_shape import replaced_at
from keel.spec.samples_shape import along

aten = torch.ops.aten
family = Family("ordering")
Tensor = torch.Tensor

TAGS = frozenset({"sort"})
_CHOOSES = Numerics(results=Results.CHOSEN)
SAME = like("self")
ORDERED = (*REALS, *BOOLS)
_NAN = Clause(
    "NaN counts as greater than everything, all NaNs as equal; zeros of both signs are equal.",
    About.NONFINITE | About.ZERO,
)


_ANY_INDEX = CudaKernel(refuses=differs("names another of several equal elements at every call"))


def _no_element_of_a_scalar(args: Args, dtype: torch.dtype | None) -> str | None:
    none = not args["self"].rank and args["k"] == 0
    return "PyTorch's CUDA kernel writes nothing where no element of a scalar is asked for." if none else None


def _sorts(dtype: torch.dtype) -> Iterator[Sample]:
    for x, dim in along(dtype):
        yield Sample((x,), {"stable": True, "dim": dim})
        yield Sample((x,), {"stable": True, "dim": dim, "descending": True})


family.primitive(
    "sort",
    "sort.stable",
    "sort.default",
    doc="Elements in ascending or descending order along a dimension, and where they came from.",
    clauses=(
        _NAN,
        Clause(
            "With stable equal elements keep their order, descending too; without, their order is not specified.",
            About.TIES,
            parameters=("stable",),
        ),
        "values are the operand's elements at indices, bits kept.",
        Clause("A scalar gives itself and index 0.", About.SCALAR),
    ),
    out=(Out(SAME, shape_of("self"), preserved()), Out(INT64, shape_of("self"), preserved())),
    dtypes=ORDERED,
    samples=_sorts,
    tags=TAGS,
    budget={d: Budget(ulps=0) for d in ORDERED},
    numerics=_CHOOSES,
    libraries=EVERY_DEVICE,
)


def _tops(dtype: torch.dtype) -> Iterator[Sample]:
    for x, dim in along(dtype):
        size = x.shape[dim] if x.dim() else 1
        for k in sorted({min(1, size), size}):
            yield Sample((x, k, dim))
            yield Sample((x, k, dim, False, True))


def _enough(args: Args) -> bool:
    x, k = args["self"], args["k"]
    n = x.shape[canonical(args["dim"], x.rank)] if x.rank else 1
    return not isinstance(k, int) or not isinstance(n, int) or 0 <= k <= n


family.primitive(
    "topk",
    "topk.default",
    doc="The k greatest or least elements along a dimension, and where they came from.",
    clauses=(
        _NAN,
        Clause(
            "With sorted the greatest (least) comes first; without, the order is not specified.", parameters=("sorted",)
        ),
        Clause(
            "values are the operand's elements at indices, bits kept; which of equal elements are taken is "
            "not specified.",
            About.TIES,
        ),
    ),
    out=(
        Out(SAME, replaced_at("self", "k", lambda args: args["k"]), DENSE),
        Out(INT64, replaced_at("self", "k", lambda args: args["k"]), DENSE),
    ),
    requires=(Requires("k-in-range", "k lies within 0 and the size of the dimension.", _enough),),
    dtypes=REALS,
    samples=_tops,
    tags=TAGS,
    budget={d: Budget(ulps=0) for d in REALS},
    numerics=_CHOOSES,
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=_no_element_of_a_scalar),
)


# -- order statistics -------------------------------------------------------------------------------------------------

Pair = tuple[Tensor, Tensor]


def _sorted(x: Tensor, dim: int) -> Pair:
    pair: Pair = aten.sort.stable(x, stable=True, dim=dim)
    return pair


def _at(pair: Pair, place: Tensor, dim: int, keepdim: bool) -> Pair:
    """The values and indices that stand at one place of a dimension."""
    gathered = [aten.gather.default(t, dim, place) for t in pair]
    values, where = gathered if keepdim else [aten.squeeze.dims(t, [dim]) for t in gathered]
    return values, where


def _scalar(x: Tensor) -> Pair:
    return aten.clone.default(x), aten.full.default([], 0, dtype=torch.int64, device=x.device)


def _counted(there: Tensor, dim: int) -> Tensor:
    total: Tensor = aten.sum.dim_IntList(there.to(torch.int64), [dim], True)
    return total


def _middle(x: Tensor, dim: int, keepdim: bool, ignore_nan: bool) -> Pair:
    """The lower median along a dimension: place (n - 1) // 2 of the order. NaN comes last there, so that the first NaN
    stands where the numbers end.
    """
    if not x.dim():
        return _scalar(x)
    dim = dim % x.dim()
    n = x.shape[dim]
    numbers = _counted(aten.eq.Tensor(x, x), dim)
    if ignore_nan:
        place = aten.clamp.default(aten.div.Tensor_mode(numbers - 1, 2, rounding_mode="floor"), 0)
    else:
        half = aten.full_like.default(numbers, (n - 1) // 2)
        place = aten.where.self(aten.lt.Scalar(numbers, n), numbers, half)
    return _at(_sorted(x, dim), place, dim, keepdim)


@family(
    "median.dim",
    tags=TAGS,
    clauses=(
        "For an even number of elements it is the lower of the two in the middle.",
        Clause("NaN among the elements gives NaN.", About.NONFINITE),
        "The index is that of an element with that value; which one is not specified.",
    ),
    libraries=EVERY_DEVICE,
    cuda=_ANY_INDEX,
)
def median(x: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The element in the middle of the order along a dimension, and its index."""
    return _middle(x, dim, keepdim, ignore_nan=False)


@family(
    "nanmedian.dim",
    tags=TAGS,
    clauses=(Clause("It is the median of the elements that are not NaN; NaN if all are.", About.NONFINITE),),
    libraries=EVERY_DEVICE,
    cuda=_ANY_INDEX,
)
def nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The median of what is not NaN along a dimension, and its index."""
    return _middle(x, dim, keepdim, ignore_nan=True)


def _flat_middle(x: Tensor, ignore_nan: bool) -> Tensor:
    if x.numel() == 0:  # the median of nothing is NaN, or the least integer
        nothing = float("nan") if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
        return aten.full.default([], nothing, dtype=x.dtype, device=x.device)
    return _middle(aten.reshape.default(x, [x.numel()]), 0, False, ignore_nan)[0]


@family(
    "median.default",
    tags=TAGS,
    clauses=(Clause("It is the median along all dimensions; NaN of no elements.", About.EMPTY),),
    libraries=EVERY_DEVICE,
)
def median_all(x: Tensor) -> Tensor:
    """The element in the middle of the order of all."""
    return _flat_middle(x, ignore_nan=False)


@family(
    "nanmedian.default",
    tags=TAGS,
    clauses=(Clause("It is the nanmedian along all dimensions; NaN of no elements.", About.EMPTY),),
    libraries=EVERY_DEVICE,
)
def nanmedian_all(x: Tensor) -> Tensor:
    """The median of all that is not NaN."""
    return _flat_middle(x, ignore_nan=True)


@family(
    "kthvalue.default",
    tags=TAGS,
    clauses=(
        Clause("k counts from 1.", parameters=("k",)),
        _NAN,
        "The index is that of an element with that value; which one is not specified.",
    ),
    libraries=EVERY_DEVICE,
    cuda=_ANY_INDEX,
)
def kthvalue(x: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> Pair:
    """The k-th least element along a dimension, and its index."""
    if not x.dim():
        return _scalar(x)
    dim = dim % x.dim()
    values, where = (aten.slice.Tensor(t, dim, k - 1, k) for t in _sorted(x, dim))
    return (values, where) if keepdim else (aten.squeeze.dims(values, [dim]), aten.squeeze.dims(where, [dim]))


@family(
    "mode.default",
    tags=TAGS,
    clauses=(
        "Among equally frequent values it is the least.",
        "The index is that of an element with that value; which one is not specified.",
    ),
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=differs("takes any of several values that are as frequent, and not the least")),
)
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent value along a dimension, and the index of one such element."""
    if not x.dim():
        return _scalar(x)
    dim = dim % x.dim()
    pair = _sorted(x, dim)
    n = x.shape[dim]
    places = aten.reshape.default(
        aten.arange.default(n, device=x.device), [n if d == dim else 1 for d in range(x.dim())]
    )
    before = aten.slice.Tensor(pair[0], dim, 0, n - 1)
    begins = aten.ne.Tensor(aten.slice.Tensor(pair[0], dim, 1, n), before)
    pad = [0, 0] * (x.dim() - 1 - dim) + [1, 0]
    begins = aten.constant_pad_nd.default(begins, pad, True)
    start = aten.cummax.default(aten.where.self(begins, places, aten.full_like.default(places, 0)), dim)[0]
    longest = aten.argmax.default(places - start, dim, True)  # the first of equal ones, which has the least value
    return _at(pair, longest, dim, keepdim)
