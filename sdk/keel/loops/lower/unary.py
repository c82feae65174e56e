"""Functions of one element, and its conversion to another dtype.

Operands are brought to the dtype of the result, computed in float32 where that is a 16-bit float, and cast once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.loops.builder import Builder, Operand, Rule, Value
from keel.loops.scalar_ops import SCALARS

from .rule_arguments import not_lowerable, out_dtype, promote, store

aten = torch.ops.aten
prims = torch.ops.prims


def unary(scalar: str) -> Rule:
    """A rule that applies one scalar op in the result's dtype."""

    def rule(b: Builder, x: Operand) -> Value:
        return store(b, b.apply(scalar, promote(b, x, out_dtype(b))))

    return rule


def rounding(scalar: str) -> Rule:
    """floor, ceil, trunc, round. Integers are returned unchanged."""

    def rule(b: Builder, x: Operand) -> Value:
        value = promote(b, x, out_dtype(b))
        return store(b, b.apply(scalar, value) if value.dtype.is_floating_point else value)

    return rule


def float_test(test: Callable[[Builder, Value], Value]) -> Rule:
    """A predicate of floating-point values, False for integers."""

    def rule(b: Builder, x: Operand) -> Value:
        value = promote(b, x, x.type.dtype)
        return test(b, value) if value.dtype.is_floating_point else b.const(False, torch.bool)

    return rule


def identity(b: Builder, x: Operand, *_: Any, **__: Any) -> Value:
    return store(b, b.broadcast(x))


def absolute(b: Builder, x: Operand) -> Value:
    value = promote(b, x, out_dtype(b))
    return store(b, value if value.dtype in (torch.bool, torch.uint8) else b.apply("abs", value))


def sign(b: Builder, x: Operand) -> Value:
    value = promote(b, x, out_dtype(b))
    return store(b, value if value.dtype == torch.bool else b.apply("sign", value))


def signbit(b: Builder, x: Operand) -> Value:
    value = promote(b, x, x.type.dtype)
    if value.dtype.is_floating_point:
        return b.apply("copysign", b.const(1, value.dtype), value) < 0
    return b.const(False, torch.bool) if value.dtype == torch.bool else value < 0


def round_decimals(b: Builder, x: Operand, *, decimals: int) -> Value:
    value = promote(b, x, out_dtype(b))
    if not value.dtype.is_floating_point:
        not_lowerable(b, "rounds integers to decimals.")
    if decimals == 0:
        return store(b, b.apply("round", value))
    ten = float(10 ** abs(decimals))
    return store(b, b.apply("round", value * ten) / ten if decimals > 0 else b.apply("round", value / ten) * ten)


def frac(b: Builder, x: Operand) -> Value:
    value = promote(b, x, out_dtype(b))
    return store(b, value - b.apply("trunc", value))


def sinc(b: Builder, x: Operand) -> Value:
    value = promote(b, x, out_dtype(b))
    angle = value * torch.pi
    return store(b, b.where(value.equals(0.0), 1.0, b.apply("sin", angle) / angle))


def logit(b: Builder, x: Operand, eps: float | None = None) -> Value:
    value = promote(b, x, out_dtype(b))
    if eps is not None:
        value = b.where(value < eps, eps, b.where(value > 1 - eps, 1 - eps, value))
    return store(b, b.apply("log", value / (1.0 - value)))


def entr(b: Builder, x: Operand) -> Value:
    value = promote(b, x, out_dtype(b))
    inside = b.where(value.equals(0.0), value * 0.0, -value * b.apply("log", value))
    return store(b, b.where(value < 0, float("-inf"), inside))


def angle(b: Builder, x: Operand) -> Value:
    """The angle of a real number: pi below zero, 0 elsewhere, NaN at NaN."""
    value = promote(b, x, out_dtype(b))
    return store(b, b.where(b.apply("isnan", value), value, b.where(value < 0, torch.pi, b.const(0, value.dtype))))


def nan_to_num(
    b: Builder, x: Operand, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    dtype = out_dtype(b)
    value = promote(b, x, dtype)
    if not dtype.is_floating_point:
        return value
    limits = torch.finfo(dtype)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    value = b.where(b.apply("isnan", value), 0.0 if nan is None else nan, value)
    value = b.where(value.equals(float("inf")), high, value)
    return store(b, b.where(value.equals(float("-inf")), low, value))


def bitwise_not(b: Builder, x: Operand) -> Value:
    return ~b.broadcast(x)


def logical_not(b: Builder, x: Operand) -> Value:
    return store(b, ~b.cast(b.broadcast(x), torch.bool))


# -- conversion --------------------------------------------------------------------------------------


def convert(b: Builder, x: Operand, *_: Any, **__: Any) -> Value:
    """A copy in the result's dtype.  A copy to another device is not a loop."""
    out = b.call.out[0]
    if out is not None and getattr(out, "device", x.type.device) != x.type.device:
        not_lowerable(b, f"copies from {x.type.device} to another device.")
    return store(b, b.broadcast(x))


def bitcast(b: Builder, x: Operand, dtype: torch.dtype) -> Value:
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != x.type.dtype.itemsize:
        not_lowerable(b, "reinterprets bits as a dtype of another width.")
    value = b.broadcast(x)
    return value if value.dtype == dtype else b.apply("bitcast", value, dtype=dtype)


ROUNDING = ("floor", "ceil", "trunc", "round")
"""Functions of one float that ATen also has for integers, which they return unchanged."""
SAME_NAME = tuple(
    op.name
    for op in SCALARS.values()
    if op.arity == 1 and op.domain == "float" and op.result == "same" and op.name not in ROUNDING
)
"""The other functions of one float. In ATen they have the names of the scalar ops."""

COPYING: Mapping[Any, Rule] = {
    aten._to_copy.default: convert,
    prims.convert_element_type.default: convert,
    aten.clone.default: identity,
    aten.alias.default: identity,
    aten.detach.default: identity,
    aten.lift_fresh_copy.default: identity,
    aten.lift_fresh.default: identity,
}

RULES: Mapping[Any, Rule] = {
    **COPYING,
    **{getattr(aten, name).default: unary(name) for name in SAME_NAME},
    aten.neg.default: unary("neg"),
    **{getattr(aten, name).default: rounding(name) for name in ROUNDING},
    aten.round.decimals: round_decimals,
    aten.abs.default: absolute,
    aten.sign.default: sign,
    aten.sgn.default: sign,
    aten.frac.default: frac,
    aten.signbit.default: signbit,
    aten.sinc.default: sinc,
    aten.logit.default: logit,
    aten.special_entr.default: entr,
    aten.angle.default: angle,
    aten.nan_to_num.default: nan_to_num,
    aten.isnan.default: float_test(lambda b, x: b.apply("isnan", x)),
    aten.isinf.default: float_test(lambda b, x: b.apply("isinf", x)),
    aten.isposinf.default: float_test(lambda b, x: x.equals(float("inf"))),
    aten.isneginf.default: float_test(lambda b, x: x.equals(float("-inf"))),
    aten.bitwise_not.default: bitwise_not,
    aten.logical_not.default: logical_not,
    aten.view.dtype: bitcast,
}
