"""Arithmetic on two and three elements, with PyTorch's promotion and special cases.

Operands are brought to the dtype that PyTorch promotes to, computed in float32 where that is a 16-bit float, and cast
once to the result's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.loops.builder import Builder, Operand, Rule, Value

from .rule_arguments import (
    Argument,
    literal,
    math_dtype,
    not_lowerable,
    out_dtype,
    overloads,
    promote,
    rounded,
    store,
)

aten = torch.ops.aten


def binary(scalar: str) -> Rule:
    """A rule that applies one floating-point scalar op in the result's dtype."""

    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        return store(b, b.apply(scalar, promote(b, x, dtype), promote(b, y, dtype)))

    return rule


def add(b: Builder, x: Argument, y: Argument, alpha: Argument = 1) -> Value:
    """x + alpha * y. The product with alpha is not rounded before the sum. The sum of bools is ``or``."""
    dtype = out_dtype(b)
    left, right = promote(b, x, dtype), promote(b, y, dtype)
    if dtype == torch.bool:
        return left | right if alpha else left
    return store(b, scaled_sum(b, left, right, alpha, dtype))


def scaled_sum(b: Builder, left: Value, right: Value, alpha: Argument, dtype: torch.dtype) -> Value:
    if isinstance(alpha, bool | int | float) and alpha == 1:
        return left + right
    scale = literal(b, alpha, dtype)
    return b.apply("fma", scale, right, left) if dtype.is_floating_point else left + right * scale


def sub(b: Builder, x: Argument, y: Argument, alpha: Argument = 1) -> Value:
    dtype = out_dtype(b)
    left, right = promote(b, x, dtype), promote(b, y, dtype)
    if isinstance(alpha, bool | int | float) and alpha == 1:
        return store(b, left - right)
    if not dtype.is_floating_point:
        return left - right * literal(b, alpha, dtype)
    return store(b, b.apply("fma", -literal(b, alpha, dtype), right, left))


def rsub(b: Builder, x: Argument, y: Argument, alpha: Argument = 1) -> Value:
    return sub(b, y, x, alpha)


def mul(b: Builder, x: Argument, y: Argument) -> Value:
    dtype = out_dtype(b)
    left, right = promote(b, x, dtype), promote(b, y, dtype)
    return store(b, left & right if dtype == torch.bool else left * right)


def div(b: Builder, x: Argument, y: Argument, *, rounding_mode: str | None = None) -> Value:
    dtype = out_dtype(b)
    left, right = promote(b, x, dtype), promote(b, y, dtype)
    if not dtype.is_floating_point:
        return unless_zero(b, "floordiv" if rounding_mode == "floor" else "truncdiv", left, right)
    if rounding_mode == "floor":
        return store(b, floor_quotient(b, left, right))
    return store(b, b.apply("trunc", left / right) if rounding_mode == "trunc" else left / right)


def floor_divide(b: Builder, x: Argument, y: Argument) -> Value:
    return div(b, x, y, rounding_mode="floor")


def unless_zero(b: Builder, scalar: str, x: Value, y: Value) -> Value:
    """An integer division, with the result 0 for a division by zero. Eager raises an error for it on CPU, and hardware
    may trap.
    """
    none = y.equals(0)
    return b.where(none, 0, b.apply(scalar, x, b.where(none, 1, y)))


def floor_quotient(b: Builder, x: Value, y: Value) -> Value:
    """Python's //, by c10's div_floor_floating: exact if the quotient is an integer, however x / y rounds."""
    rest = b.apply("fmod", x, y)
    quotient = (x - rest) / y
    wrong_side = ~rest.equals(0.0) & b.apply("ne", y < 0, rest < 0)
    quotient = b.where(wrong_side, quotient - 1.0, quotient)
    low = b.apply("floor", quotient)
    low = b.where(quotient - low > 0.5, low + 1.0, low)
    quotient = b.where(quotient.equals(0.0), b.apply("copysign", b.const(0, x.dtype), x / y), low)
    return b.where(y.equals(0.0), x / y, quotient)


def remainder(scalar: str) -> Rule:
    """mod (the divisor's sign) or fmod (the dividend's)."""

    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        left, right = rounded(b, x, dtype), rounded(b, y, dtype)
        if dtype.is_floating_point:
            return store(b, b.apply(scalar, left, right))
        return unless_zero(b, scalar, left, right)

    return rule


def pow_scalar(b: Builder, x: Operand, exponent: Argument) -> Value:
    dtype = out_dtype(b)
    value = promote(b, x, dtype)
    if not isinstance(exponent, bool | int | float):
        not_lowerable(b, "raises to a symbolic exponent.")
    if not dtype.is_floating_point:
        if exponent < 0:
            not_lowerable(b, f"raises integers to {exponent}, at which eager raises an error.")
        return b.cast(_whole_power(b, b.cast(value, dtype), int(exponent)), dtype)
    return store(b, _float_power(b, value, float(exponent)))


def _whole_power(b: Builder, x: Value, n: int) -> Value:
    """x to the n by repeated squaring; integers wrap, bools are 0 and 1."""
    if x.dtype == torch.bool:
        return b.const(True, torch.bool) if n == 0 else x
    result = b.const(1, x.dtype)
    while n:
        if n & 1:
            result = result * x
        n >>= 1
        x = x * x if n else x
    return result


def _float_power(b: Builder, x: Value, n: float) -> Value:
    """Exponents for which eager does not call pow. At 0.5, special values differ from C's pow."""
    match n:
        case 0.0:
            return b.const(1, x.dtype)
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            return b.apply("sqrt", x)
        case -0.5:
            return 1.0 / b.apply("sqrt", x)
        case -1.0:
            return 1.0 / x
        case -2.0:
            return 1.0 / (x * x)
    return b.apply("pow", x, n)


def next_after(b: Builder, x: Operand, y: Operand) -> Value:
    dtype = out_dtype(b)
    left, right = promote(b, x, dtype), promote(b, y, dtype)
    if math_dtype(dtype) == dtype:
        return b.apply("nextafter", left, right)
    # Returns the neighbor in a 16-bit float: one step of its bits, away from zero if y lies farther out.
    bits = b.apply("bitcast", b.cast(left, dtype), dtype=torch.int16)
    outward = b.apply("eq", right > left, left > 0.0)
    least = b.where(right > 0.0, b.const(1, torch.int16), b.const(-0x7FFF, torch.int16))
    moved = b.where(left.equals(0.0), least, b.where(outward, bits + 1, bits - 1))
    there = b.cast(b.apply("bitcast", moved, dtype=dtype), torch.float32)
    result = b.where(left.equals(right), right, there)
    return store(b, b.where(b.apply("isnan", left) | b.apply("isnan", right), float("nan"), result))


def power(b: Builder, x: Argument, y: Argument) -> Value:
    """A power with a tensor as exponent. A negative integer exponent gives 0, except for the bases 1 and -1."""
    dtype = out_dtype(b)
    base, exponent = promote(b, x, dtype), promote(b, y, dtype)
    if dtype == torch.bool:
        return base | ~exponent
    if dtype.is_floating_point:
        return store(b, b.apply("pow", base, exponent))
    odd = ~(exponent & 1).equals(0)
    unit = (
        b.where(base.equals(1), 1, b.where(base.equals(-1), b.where(odd, b.const(-1, dtype), 1), 0))
        if torch.iinfo(dtype).min < 0
        else None
    )
    result, square = b.const(1, dtype), base
    bits = torch.iinfo(dtype).bits
    for n in range(bits - (unit is not None)):
        result = b.where((b.apply("shr", exponent, n) & 1).equals(0), result, result * square)
        square = square * square
    return result if unit is None else b.where(exponent < 0, unit, result)


def xlogy(log: str) -> Rule:
    """x log(y), 0 where x is 0 unless y is NaN."""

    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        left, right = promote(b, x, dtype), promote(b, y, dtype)
        product = b.where(left.equals(0.0), 0.0, left * b.apply(log, right))
        return store(b, b.where(b.apply("isnan", right), float("nan"), product))

    return rule


def heaviside(b: Builder, x: Operand, at_zero: Operand) -> Value:
    dtype = out_dtype(b)
    value, middle = promote(b, x, dtype), promote(b, at_zero, dtype)
    if dtype == torch.bool:
        return value | middle
    return store(b, b.where(value.equals(0), middle, b.where(value > 0, b.const(1, value.dtype), 0)))


def hypot(b: Builder, x: Operand, y: Operand) -> Value:
    """sqrt(x^2 + y^2) without overflow on the way."""
    dtype = out_dtype(b)
    left, right = (b.apply("abs", promote(b, t, dtype)) for t in (x, y))
    high, low = b.apply("maximum", left, right), b.apply("minimum", left, right)
    ratio = low / high
    slant = b.apply("sqrt", b.apply("fma", ratio, ratio, b.const(1, high.dtype)))
    length = b.where(high.equals(0.0), 0.0, high * slant)
    endless = left.equals(float("inf")) | right.equals(float("inf"))
    return store(b, b.where(endless, float("inf"), length))


def log_add_exp(exp: str, log: Callable[[Builder, Value], Value]) -> Rule:
    """log(e^x + e^y), with the larger operand factored out, so that nothing overflows."""

    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        dtype = out_dtype(b)
        left, right = promote(b, x, dtype), promote(b, y, dtype)
        same_end = left.equals(right) & b.apply("isinf", left)
        gap = b.apply("abs", left - right)
        total = b.apply("maximum", left, right) + log(b, b.apply(exp, -gap))
        return store(b, b.where(same_end, left, total))

    return rule


def addcmul(b: Builder, x: Operand, y: Operand, z: Operand, *, value: Argument = 1) -> Value:
    dtype = out_dtype(b)
    start, left, right = (promote(b, t, dtype) for t in (x, y, z))
    scaled = left if isinstance(value, bool | int | float) and value == 1 else literal(b, value, dtype) * left
    return store(b, b.apply("fma", scaled, right, start) if dtype.is_floating_point else start + scaled * right)


def addcdiv(b: Builder, x: Operand, y: Operand, z: Operand, *, value: Argument = 1) -> Value:
    dtype = out_dtype(b)
    if not dtype.is_floating_point:
        not_lowerable(b, "divides integers.")
    start, left, right = (promote(b, t, dtype) for t in (x, y, z))
    scaled = left if isinstance(value, bool | int | float) and value == 1 else literal(b, value, dtype) * left
    return store(b, start + scaled / right)


def lerp(b: Builder, start: Operand, end: Operand, weight: Argument) -> Value:
    """Interpolates from the nearer end, so that the weights 0 and 1 are exact."""
    dtype = out_dtype(b)
    first, last, w = promote(b, start, dtype), promote(b, end, dtype), promote(b, weight, dtype)
    near = b.apply("abs", w) < 0.5
    return store(b, b.apply("fma", b.where(near, w, w - 1.0), last - first, b.where(near, first, last)))


RULES: Mapping[Any, Rule] = {
    **overloads(aten.add, add, "Tensor", "Scalar"),
    **overloads(aten.sub, sub, "Tensor", "Scalar"),
    **overloads(aten.rsub, rsub, "Tensor", "Scalar"),
    **overloads(aten.mul, mul, "Tensor", "Scalar"),
    **overloads(aten.div, div, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **overloads(aten.true_divide, div, "Tensor", "Scalar"),
    **overloads(aten.floor_divide, floor_divide, "default", "Scalar"),
    **overloads(aten.remainder, remainder("mod"), "Tensor", "Scalar", "Scalar_Tensor"),
    **overloads(aten.fmod, remainder("fmod"), "Tensor", "Scalar"),
    aten.pow.Tensor_Scalar: pow_scalar,
    aten.pow.Tensor_Tensor: power,
    aten.pow.Scalar: power,
    aten.atan2.default: binary("atan2"),
    aten.nextafter.default: next_after,
    **overloads(aten.copysign, binary("copysign"), "Tensor", "Scalar"),
    **overloads(aten.xlogy, xlogy("log"), "Tensor", "Scalar_Self", "Scalar_Other"),
    **overloads(aten.special_xlog1py, xlogy("log1p"), "default", "self_scalar", "other_scalar"),
    aten.heaviside.default: heaviside,
    aten.hypot.default: hypot,
    aten.logaddexp.default: log_add_exp("exp", lambda b, x: b.apply("log1p", x)),
    aten.logaddexp2.default: log_add_exp("exp2", lambda b, x: b.apply("log1p", x) * (1 / math.log(2))),
    aten.addcmul.default: addcmul,
    aten.addcdiv.default: addcdiv,
    **overloads(aten.lerp, lerp, "Scalar", "Tensor"),
}
