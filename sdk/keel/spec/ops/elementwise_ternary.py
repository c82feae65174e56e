"""Elementwise functions of three operands: the choice, the product added without rounding, the bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from keel.loops.clamp_bounds import keeps_all
from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, BOOLS, COMPLEX, FLOAT8, INTS, NUMBERS, REALS
from keel.spec.numerics import Numerics
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.ops.operands import common_dtype, number
from keel.spec.preconditions import broadcasts, no_complex, only
from keel.spec.rules import Args, Out, broadcast, elementwise, promoted
from keel.spec.samples import NAN, binary, drawn, specials, unary

aten = torch.ops.aten
family = Family("elementwise ternary")

Tensor = torch.Tensor
_MIXED = Clause("Operands are converted to the promoted dtype first.", About.PROMOTION)


def _choices(dtype: torch.dtype) -> Iterator[Sample]:
    if dtype in FLOAT8:
        x = drawn(torch.float32, 2, 3).to(dtype)
        yield Sample((drawn(torch.bool, 2, 3), x, x.t().contiguous().t()))
        return
    for i, sample in enumerate(binary(dtype)):
        shape = torch.broadcast_shapes(*(a.shape for a in sample.args))
        yield Sample((drawn(torch.bool, *shape, seed=i), *sample.args))
    mask, x = drawn(torch.bool, 2, 3, seed=20), drawn(dtype, 3, seed=21)
    yield Sample((mask.t().contiguous().t(), drawn(dtype, 2, 1, seed=22), x))
    for other in (torch.bool, torch.int64, torch.float32):
        yield Sample((mask, x, drawn(other, 2, 1, seed=23)))
        yield Sample((mask[0], x, drawn(other, seed=24)))
    for value in (2, 2.5, True):
        yield Sample((mask, x, value))
        yield Sample((mask, value, x))
    yield Sample((mask, 1, 2.5))


family.primitive(
    "where",
    *(f"where.{o}" for o in ("self", "ScalarSelf", "ScalarOther", "Scalar")),
    doc="self where condition is true, else other.",
    clauses=(
        Clause(
            "The element that is not chosen has no influence: NaN, infinities and errors in it are not seen.",
            About.NONFINITE,
        ),
        Clause("NaN and the signs of zeros are kept.", About.NONFINITE),
        _MIXED,
    ),
    out=(
        Out(
            promoted("self", "other"),
            broadcast("condition", "self", "other"),
            elementwise("condition", "self", "other"),
        ),
    ),
    operands=("self", "other"),
    compute=promoted("self", "other"),
    dtypes=(*ALL, *FLOAT8),
    samples=_choices,
    requires=(
        broadcasts("condition", "self", "other"),
        only("condition", dtypes=(torch.bool, torch.uint8), which="bools where they are the condition"),
    ),
    budget={d: Budget(ulps=0) for d in (*ALL, *FLOAT8)},
    tags=frozenset({"pointwise"}),
)


def _sums(dtype: torch.dtype) -> Iterator[Sample]:
    values = specials(dtype)[::3] if dtype.is_floating_point or dtype.is_complex else specials(dtype)
    yield Sample((values[:, None, None], values[:, None], values))
    for i, sample in enumerate(binary(dtype)):
        if i:
            x, y = sample.args
            yield Sample((x, y, drawn(dtype, *torch.broadcast_shapes(x.shape, y.shape), seed=i)))
    x, y, z = (drawn(dtype, 2, 3, seed=n) for n in range(3))
    yield Sample((x, y[0], z[:, :1]), {"value": 2})
    if dtype.is_floating_point or dtype.is_complex:
        yield Sample((x, y, z), {"value": -0.5})
    yield Sample((x, drawn(torch.float32, 3), z))
    yield Sample((x, y, drawn(torch.float64)))


def _whole_value(args: Args) -> bool:
    return not isinstance(args["value"], float) or promoted("self", "tensor1", "tensor2").of(args) not in INTS


_TRIPLE = promoted("self", "tensor1", "tensor2")
family.primitive(
    "fma",
    "addcmul",
    doc="self + value * tensor1 * tensor2, without rounding before the sum.",
    clauses=(
        "The product by tensor2 is not rounded before it is added; that of value and tensor1 may be.",
        Clause("NaN in an operand gives NaN.", About.NONFINITE),
        Clause("0 times an infinity gives NaN, whatever is added.", About.NONFINITE),
        Clause("Infinities of different signs give NaN.", About.NONFINITE),
        Clause("Integers wrap around.", About.INTEGER_EDGE | About.INTEGER),
        _MIXED,
    ),
    out=(Out(_TRIPLE, broadcast("self", "tensor1", "tensor2"), elementwise("self", "tensor1", "tensor2")),),
    operands=("self", "tensor1", "tensor2"),
    compute=_TRIPLE,
    dtypes=NUMBERS,
    samples=_sums,
    requires=(
        broadcasts("self", "tensor1", "tensor2"),
        Requires("value-fits-dtype", "A value that is a float needs floats.", _whole_value),
    ),
    budget={d: Budget(ulps=16 if d in COMPLEX else 0 if d in INTS else 1) for d in NUMBERS},
    tags=frozenset({"pointwise"}),
    numerics=Numerics(overflows=True, free_zero_sign=True, rounded_once=True),
)


# -- bounds -------------------------------------------------------------------------------------------


def _bounded(x: Tensor, low: Any, high: Any) -> Tensor:
    dtype = common_dtype(x, *(b for b in (low, high) if b is not None))
    result = x.to(dtype)
    for bound, nearer, upper in ((low, aten.maximum.default, False), (high, aten.minimum.default, True)):
        if bound is not None and not keeps_all(bound, dtype, upper=upper):
            of = bound.to(dtype) if isinstance(bound, torch.Tensor) else number(bound, dtype, x.device)
            result = nearer(result, of)
    return aten.clone.default(x) if low is None and high is None else result


def _bounds(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in unary(dtype):
        yield Sample((*sample.args, 1, 2))
        yield Sample((*sample.args, None, 2))
    x = drawn(dtype, 2, 3, seed=1)
    yield from (Sample((x, *b)) for b in ((2, 1), (1, None), (0, 1.5)))
    if dtype.is_floating_point:
        yield from (Sample((x, *b)) for b in ((NAN, 1.0), (0.1, NAN)))
    yield Sample((x, drawn(dtype, 3, seed=2), drawn(dtype, 2, 1, seed=3)))
    yield Sample((x, None, drawn(torch.float32, 3, seed=2)))


_BOUND = (
    Clause("NaN in the operand or in a bound gives NaN.", About.NONFINITE),
    "Where the bounds cross, max is the result.",
    _MIXED,
)
_FACTS = {
    "samples": _bounds,
    "dtypes": (*REALS, *BOOLS),
    "tags": frozenset({"pointwise"}),
    "requires": (no_complex("self", "min", "max"), broadcasts("self", "min", "max")),
    "budget": {d: Budget(ulps=0) for d in (*REALS, *BOOLS)},
}


@family("clamp", "clamp.Tensor", clauses=_BOUND, **_FACTS)
def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """The operand, not less than min and not more than max."""
    return _bounded(x, min, max)


@family(
    "clamp_min",
    "clamp_min.Tensor",
    clauses=_BOUND[::2],
    **{
        **_FACTS,
        "samples": lambda dtype: (Sample((s.args[0], s.args[1])) for s in _bounds(dtype) if s.args[1] is not None),
    },
)
def clamp_min(x: Tensor, min: Any) -> Tensor:
    """The operand, not less than min."""
    return _bounded(x, min, None)


@family(
    "clamp_max",
    "clamp_max.Tensor",
    clauses=_BOUND[::2],
    **{
        **_FACTS,
        "samples": lambda dtype: (Sample((s.args[0], s.args[2])) for s in _bounds(dtype) if s.args[2] is not None),
    },
)
def clamp_max(x: Tensor, max: Any) -> Tensor:
    """The operand, not more than max."""
    return _bounded(x, None, max)
