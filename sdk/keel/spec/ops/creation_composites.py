"""Tensors made of numbers that are composites: filled ones, and progressions with other names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, COMPLEX, FLOATS
from keel.spec.op import Family, Sample
from keel.spec.ops.creation import CREATION
from keel.spec.ops.operands import floating_dtype, number
from keel.spec.rules import REAL
from keel.spec.samples import drawn, layouts

aten = torch.ops.aten
family = Family("creation")

Tensor = torch.Tensor


_LIKE = "dtype and device are those of the operand unless others are given, strides too if they are dense."
_NEW = "dtype and device are those of the operand unless others are given; the layout is row-major."


def _shapes(dtype: torch.dtype) -> Iterator[Sample]:
    yield from (Sample((size,), {"dtype": dtype}) for size in ([], [0, 2], [3, 4]))
    yield Sample(([2, 3],))


def _operands(dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((drawn(dtype),))
    yield from (Sample((x,)) for x in layouts(dtype))
    yield Sample((drawn(dtype, 2, 3),), {"dtype": torch.float64})


def _sized(dtype: torch.dtype) -> Iterator[Sample]:
    yield from (Sample((drawn(dtype, 2), size)) for size in ([], [0, 2], [3, 4]))
    yield Sample((drawn(dtype, 2), [2]), {"dtype": torch.int32})


@family(
    "zeros",
    clauses=("Every element is +0; the default float without a dtype.",),
    samples=_shapes,
    dtypes=ALL,
    tags=CREATION,
)
def zeros(size: Sequence[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Zeros."""
    return aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


@family(
    "ones",
    clauses=("Every element is 1; the default float without a dtype.",),
    samples=_shapes,
    dtypes=ALL,
    tags=CREATION,
)
def ones(size: Sequence[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Ones."""
    return aten.full.default(size, 1, dtype=dtype or torch.get_default_dtype(), device=device)


def _same(x: Tensor, size: Sequence[Any], value: Any, dtype: torch.dtype | None, device: Any) -> Tensor:
    return aten.full.default(size, value, dtype=dtype or x.dtype, device=device or x.device)


@family(
    "full_like",
    clauses=("Every element is fill_value.", _LIKE),
    samples=lambda dtype: (Sample((s.args[0], 1), s.kwargs) for s in _operands(dtype)),
    dtypes=ALL,
    tags=CREATION,
)
def full_like(x: Tensor, fill_value: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """A constant of the operand's sizes."""
    return _same(x, x.shape, fill_value, dtype, device)


@family("zeros_like", clauses=("Every element is +0.", _LIKE), samples=_operands, dtypes=ALL, tags=CREATION)
def zeros_like(x: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Zeros of the operand's sizes."""
    return _same(x, x.shape, 0, dtype, device)


@family("ones_like", clauses=("Every element is 1.", _LIKE), samples=_operands, dtypes=ALL, tags=CREATION)
def ones_like(x: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Ones of the operand's sizes."""
    return _same(x, x.shape, 1, dtype, device)


@family(
    "new_full",
    clauses=("Every element is fill_value.", _NEW),
    samples=lambda dtype: (Sample((*s.args, 1), s.kwargs) for s in _sized(dtype)),
    dtypes=ALL,
    tags=CREATION,
)
def new_full(
    x: Tensor, size: Sequence[Any], fill_value: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """A constant of the operand's dtype."""
    return _same(x, size, fill_value, dtype, device)


@family("new_zeros", clauses=("Every element is +0.", _NEW), samples=_sized, dtypes=ALL, tags=CREATION)
def new_zeros(
    x: Tensor, size: Sequence[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """Zeros of the operand's dtype."""
    return _same(x, size, 0, dtype, device)


@family("new_ones", clauses=("Every element is 1.", _NEW), samples=_sized, dtypes=ALL, tags=CREATION)
def new_ones(
    x: Tensor, size: Sequence[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """Ones of the operand's dtype."""
    return _same(x, size, 1, dtype, device)


@family(
    "_efficientzerotensor",
    clauses=("Every element is +0.",),
    samples=_shapes,
    dtypes=ALL,
    tags=CREATION,
    name="zero_tensor",
)
def zero_tensor(size: Sequence[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Zeros, which eager does not store."""
    return aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


@family(
    "fill.Scalar",
    "fill.Tensor",
    clauses=("Every element is value, converted to the operand's dtype.",),
    samples=lambda dtype: (Sample((*s.args, 1)) for s in _operands(dtype) if not s.kwargs),
    dtypes=ALL,
    tags=frozenset({"pointwise"}),
)
def fill(x: Tensor, value: Any) -> Tensor:
    """The operand with every element replaced."""
    if isinstance(value, torch.Tensor):
        return aten.clone.default(aten.expand.default(value.to(x.dtype).to(x.device), x.shape))
    return _same(x, x.shape, value, None, None)


@family(
    "zero",
    clauses=("Every element is +0.",),
    samples=lambda dtype: (s for s in _operands(dtype) if not s.kwargs),
    dtypes=ALL,
    tags=frozenset({"pointwise"}),
)
def zero(x: Tensor) -> Tensor:
    """The operand with every element replaced by 0."""
    return _same(x, x.shape, 0, None, None)


@family(
    *(f"linspace{o}" for o in ("", ".Tensor_Tensor", ".Tensor_Scalar", ".Scalar_Tensor")),
    clauses=(
        "Numbers are measured from the nearer end, so that the first is start and the last end, exactly.",
        "A single number is start.",
        "In an integer dtype numbers are rounded towards zero.",
        "Without a dtype it is the default float.",
    ),
    tags=CREATION,
    dtypes=(*FLOATS, torch.int64),
    samples=lambda dtype: (
        Sample((*ends, n), {"dtype": dtype}) for n in (0, 1, 2, 50) for ends in ((0, 1), (3, -7), (-100, 100))
    ),
)
def linspace(
    start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """steps numbers from start to end, at equal distances."""
    tensors = [v for v in (start, end) if isinstance(v, torch.Tensor)]
    dtype = dtype or floating_dtype(start, end)
    math = dtype if dtype in (torch.float64, *COMPLEX) else torch.float32
    device = device or (tensors[0].device if tensors else None)
    first, last = (v.to(math) if isinstance(v, torch.Tensor) else number(v, math, device) for v in (start, end))
    if steps < 2:
        return aten.clone.default(aten.expand.default(first, [steps])).to(dtype)
    place = aten.arange.default(steps, dtype=math if not math.is_complex else REAL[math], device=device)
    step = (last - first) / (steps - 1)
    near = aten.lt.Scalar(place, steps // 2)
    up = aten.addcmul.default(first, place, step)
    down = aten.addcmul.default(last, (steps - 1) - place, step, value=-1)
    return aten.where.self(near, up, down).to(dtype)


family.composite(
    "arange",
    "arange",
    "arange.start",
    doc="0 or start, then 1 more each time, before end.",
    clauses=("It is iota with a step of 1.",),
    tags=CREATION,
    dtypes=(*FLOATS, torch.int64, torch.int32),
    samples=lambda dtype: (Sample((n,), {"dtype": dtype}) for n in (0, 1, 5, 2.5)),
)
family.composite(
    "eye",
    "eye",
    "eye.m",
    doc="1 where row and column are the same, else 0.",
    clauses=("The default float without a dtype.",),
    tags=CREATION,
    dtypes=ALL,
    samples=lambda dtype: (Sample((n,), {"dtype": dtype}) for n in (0, 1, 5)),
)


@family(
    *(f"logspace{o}" for o in ("", ".Tensor_Tensor", ".Tensor_Scalar", ".Scalar_Tensor")),
    clauses=(
        "A single number is base ** start.",
        "In an integer dtype start and end are truncated to integers first.",
        Clause("For a base below 0, powers with exponents that are not integers are NaN.", About.NONFINITE),
    ),
    tags=CREATION,
    dtypes=(torch.float32, torch.float64),
    samples=lambda dtype: (Sample((*ends, n), {"dtype": dtype}) for n in (0, 1, 2, 50) for ends in ((0, 1), (3, -7))),
)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    """base to the powers that linspace gives."""
    dtype = dtype or floating_dtype(start, end)
    if not (dtype.is_floating_point or dtype.is_complex):
        start, end = (v.to(dtype) if isinstance(v, torch.Tensor) else int(v) for v in (start, end))
    powers = linspace(start, end, steps, dtype=torch.complex128 if dtype.is_complex else torch.float64, device=device)
    return aten.pow.Scalar(base, powers).to(dtype)


for _name, _doc in (("tril_indices", "not above"), ("triu_indices", "not below")):
    family.composite(
        _name,
        _name,
        doc=f"Row and column of each element of a matrix that is {_doc} a diagonal.",
        clauses=("Elements are in the order of rows.", "offset moves the diagonal to the right."),
        tags=CREATION,
        dtypes=(torch.int64,),
        samples=lambda dtype: (
            Sample(args, {"dtype": dtype}) for args in ((3, 4), (4, 3, 1), (3, 3, -1), (0, 2), (2, 2, 5))
        ),
    )
