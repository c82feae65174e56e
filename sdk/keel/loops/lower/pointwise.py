"""Arithmetic, comparison and logic, element by element, with PyTorch's promotion and its corners.

Operands are brought to the dtype that PyTorch promotes to, computed in float32 where that is a 16-bit float, and cast
once to the result's dtype.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.loops.define import Builder, Operand, Rule, Value

from .arguments import Argument, exact, lift, literal, math_dtype, out_dtype, refuse, result_dtype, rounded, store

aten = torch.ops.aten
prims = torch.ops.prims


# -- one operand -------------------------------------------------------------------------------------

def unary(scalar: str) -> Rule:
    """A rule that applies one scalar op in the result's dtype."""
    def rule(b: Builder, x: Operand) -> Value:
        return store(b, b.apply(scalar, lift(b, x, out_dtype(b))))
    return rule


def rounding(scalar: str) -> Rule:
    """floor, ceil, trunc, round: integers are what they are."""
    def rule(b: Builder, x: Operand) -> Value:
        value = lift(b, x, out_dtype(b))
        return store(b, b.apply(scalar, value) if value.dtype.is_floating_point else value)
    return rule


def float_test(test: Callable[[Builder, Value], Value]) -> Rule:
    """A question about floating-point values; False for integers."""
    def rule(b: Builder, x: Operand) -> Value:
        value = lift(b, x, x.type.dtype)
        return test(b, value) if value.dtype.is_floating_point else b.const(False, torch.bool)
    return rule


def identity(b: Builder, x: Operand, *_: Any, **__: Any) -> Value:
    return store(b, b.broadcast(x))


def absolute(b: Builder, x: Operand) -> Value:
    value = lift(b, x, out_dtype(b))
    return store(b, value if value.dtype in (torch.bool, torch.uint8) else b.apply("abs", value))


def sign(b: Builder, x: Operand) -> Value:
    value = lift(b, x, out_dtype(b))
    return store(b, value if value.dtype == torch.bool else b.apply("sign", value))


def signbit(b: Builder, x: Operand) -> Value:
    value = lift(b, x, x.type.dtype)
    if value.dtype.is_floating_point:
        return b.apply("copysign", b.const(1, value.dtype), value) < 0
    return b.const(False, torch.bool) if value.dtype == torch.bool else value < 0


def round_decimals(b: Builder, x: Operand, *, decimals: int) -> Value:
    value = lift(b, x, out_dtype(b))
    if not value.dtype.is_floating_point:
        refuse(b, "rounds integers to decimals.")
    if decimals == 0:
        return store(b, b.apply("round", value))
    ten = float(10 ** abs(decimals))
    return store(b, b.apply("round", value * ten) / ten if decimals > 0 else b.apply("round", value / ten) * ten)


def frac(b: Builder, x: Operand) -> Value:
    value = lift(b, x, out_dtype(b))
    return store(b, value - b.apply("trunc", value))


def sinc(b: Builder, x: Operand) -> Value:
    value = lift(b, x, out_dtype(b))
    angle = value * torch.pi
    return store(b, b.where(value.equals(0.0), 1.0, b.apply("sin", angle) / angle))


def logit(b: Builder, x: Operand, eps: float | None = None) -> Value:
    value = lift(b, x, out_dtype(b))
    if eps is not None:
        value = b.apply("minimum", b.apply("maximum", value, eps), 1 - eps)
    return store(b, b.apply("log", value / (1.0 - value)))


def entr(b: Builder, x: Operand) -> Value:
    value = lift(b, x, out_dtype(b))
    inside = b.where(value.equals(0.0), value * 0.0, -value * b.apply("log", value))
    return store(b, b.where(value < 0, float("-inf"), inside))


def nan_to_num(b: Builder, x: Operand, nan: float | None = None, posinf: float | None = None,
               neginf: float | None = None) -> Value:
    dtype = out_dtype(b)
    value = lift(b, x, dtype)
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


# -- two operands ------------------------------------------------------------------------------------

def binary(scalar: str) -> Rule:
    """A rule that applies one floating-point scalar op in the result's dtype."""
    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        return store(b, b.apply(scalar, lift(b, x, dtype), lift(b, y, dtype)))
    return rule


def add(b: Builder, x: Argument, y: Argument, alpha: Argument = 1) -> Value:
    """x + alpha * y; with an alpha the product is not rounded before the sum. Bools add as ``or``."""
    dtype = out_dtype(b)
    left, right = lift(b, x, dtype), lift(b, y, dtype)
    if dtype == torch.bool:
        return left | right if alpha else left
    return store(b, scaled_sum(b, left, right, alpha, dtype))


def scaled_sum(b: Builder, left: Value, right: Value, alpha: Argument, dtype: torch.dtype) -> Value:
    if isinstance(alpha, bool | int | float) and alpha == 1:
        return left + right
    scale = literal(b, alpha, dtype)                                                       # type: ignore[arg-type]
    return b.apply("fma", scale, right, left) if dtype.is_floating_point else left + right * scale


def sub(b: Builder, x: Argument, y: Argument, alpha: Argument = 1) -> Value:
    dtype = out_dtype(b)
    left, right = lift(b, x, dtype), lift(b, y, dtype)
    if isinstance(alpha, bool | int | float) and alpha == 1:
        return store(b, left - right)
    if not dtype.is_floating_point:
        return left - right * literal(b, alpha, dtype)                                     # type: ignore[arg-type]
    return store(b, b.apply("fma", -literal(b, alpha, dtype), right, left))                # type: ignore[arg-type]


def rsub(b: Builder, x: Argument, y: Argument, alpha: Argument = 1) -> Value:
    return sub(b, y, x, alpha)


def mul(b: Builder, x: Argument, y: Argument) -> Value:
    dtype = out_dtype(b)
    left, right = lift(b, x, dtype), lift(b, y, dtype)
    return store(b, left & right if dtype == torch.bool else left * right)


def div(b: Builder, x: Argument, y: Argument, *, rounding_mode: str | None = None) -> Value:
    dtype = out_dtype(b)
    left, right = lift(b, x, dtype), lift(b, y, dtype)
    if not dtype.is_floating_point:
        return unless_zero(b, "floordiv" if rounding_mode == "floor" else "truncdiv", left, right)
    if rounding_mode == "floor":
        return store(b, floor_quotient(b, left, right))
    return store(b, b.apply("trunc", left / right) if rounding_mode == "trunc" else left / right)


def floor_divide(b: Builder, x: Argument, y: Argument) -> Value:
    return div(b, x, y, rounding_mode="floor")


def unless_zero(b: Builder, scalar: str, x: Value, y: Value) -> Value:
    """An integer division; 0 where it divides by zero, at which eager on CPU raises an error and hardware may trap."""
    none = y.equals(0)
    return b.where(none, 0, b.apply(scalar, x, b.where(none, 1, y)))


def floor_quotient(b: Builder, x: Value, y: Value) -> Value:
    """Python's //: exact where the quotient is a whole number, however x / y rounds (c10's div_floor_floating)."""
    rest = b.apply("fmod", x, y)
    whole = (x - rest) / y
    wrong_side = ~rest.equals(0.0) & b.apply("ne", y < 0, rest < 0)
    whole = b.where(wrong_side, whole - 1.0, whole)
    low = b.apply("floor", whole)
    low = b.where(whole - low > 0.5, low + 1.0, low)
    quotient = b.where(whole.equals(0.0), b.apply("copysign", b.const(0, x.dtype), x / y), low)
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
    value = lift(b, x, dtype)
    if not isinstance(exponent, bool | int | float):
        refuse(b, "raises to a symbolic exponent.")
    if not dtype.is_floating_point:
        if exponent < 0:
            refuse(b, f"raises integers to {exponent}, at which eager raises an error.")
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
    """The exponents that eager computes without a power: special values differ from C's pow at a half."""
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
    if math_dtype(dtype) != dtype:
        refuse(b, f"has no neighbours to find in {str(dtype).removeprefix('torch.')}, which is computed in float32.")
    return b.apply("nextafter", lift(b, x, dtype), lift(b, y, dtype))


def power(b: Builder, x: Argument, y: Argument) -> Value:
    """A tensor exponent. Integers: a negative exponent gives 0, but for the bases 1 and -1."""
    dtype = out_dtype(b)
    base, exponent = lift(b, x, dtype), lift(b, y, dtype)
    if dtype == torch.bool:
        return base | ~exponent
    if dtype.is_floating_point:
        return store(b, b.apply("pow", base, exponent))
    odd = ~(exponent & 1).equals(0)
    unit = b.where(base.equals(1), 1, b.where(base.equals(-1), b.where(odd, b.const(-1, dtype), 1), 0))         \
        if torch.iinfo(dtype).min < 0 else None
    result, square = b.const(1, dtype), base
    bits = torch.iinfo(dtype).bits
    for n in range(bits - (unit is not None)):
        result = b.where((b.apply("shr", exponent, n) & 1).equals(0), result, result * square)
        square = square * square
    return result if unit is None else b.where(exponent < 0, unit, result)


def comparison(scalar: str) -> Rule:
    def rule(b: Builder, x: Operand, y: Argument) -> Value:
        common = result_dtype(x, y)
        return store(b, b.apply(scalar, rounded(b, x, common), rounded(b, y, common)))
    return rule


def bitwise(scalar: str) -> Rule:
    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        return b.apply(scalar, lift(b, x, dtype), lift(b, y, dtype))
    return rule


def logical(scalar: str) -> Rule:
    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        return store(b, b.apply(scalar, *(b.cast(b.broadcast(t), torch.bool) for t in (x, y))))
    return rule


def shift(scalar: str) -> Rule:
    """Shifts by a negative amount, or by the width and more, drop every bit; to the right the sign fills."""
    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        if dtype.is_floating_point:
            refuse(b, "shifts floating-point numbers.")
        value, amount = lift(b, x, dtype), lift(b, y, dtype)
        info = torch.iinfo(dtype)
        last = info.bits - 1
        beyond = amount > last if info.min == 0 else (amount < 0) | (amount > last)
        done = b.apply(scalar, value, b.where(beyond, 0, amount))
        rest = b.apply("shr", value, last) if scalar == "shr" and info.min < 0 else 0
        return b.where(beyond, rest, done)
    return rule


def extremum(scalar: str) -> Rule:
    """maximum or minimum; NaN wins. Bools: or, and."""
    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        dtype = out_dtype(b)
        left, right = lift(b, x, dtype), lift(b, y, dtype)
        if dtype == torch.bool:
            return left | right if scalar == "maximum" else left & right
        return store(b, b.apply(scalar, left, right))
    return rule


def number_extremum(scalar: str) -> Rule:
    """fmax or fmin: NaN loses."""
    plain = extremum(scalar)

    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        dtype = out_dtype(b)
        if not dtype.is_floating_point:
            return plain(b, x, y)                                                              # type: ignore[no-any-return]
        left, right = lift(b, x, dtype), lift(b, y, dtype)
        best = b.where(b.apply("isnan", right), left, b.apply(scalar, left, right))
        return store(b, b.where(b.apply("isnan", left), right, best))
    return rule


def xlogy(log: str) -> Rule:
    """x log(y), 0 where x is 0 unless y is NaN."""
    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        left, right = lift(b, x, dtype), lift(b, y, dtype)
        product = b.where(left.equals(0.0), 0.0, left * b.apply(log, right))
        return store(b, b.where(b.apply("isnan", right), float("nan"), product))
    return rule


def heaviside(b: Builder, x: Operand, at_zero: Operand) -> Value:
    dtype = out_dtype(b)
    value, middle = lift(b, x, dtype), lift(b, at_zero, dtype)
    if dtype == torch.bool:
        return value | middle
    return store(b, b.where(value.equals(0), middle, b.where(value > 0, b.const(1, value.dtype), 0)))


def hypot(b: Builder, x: Operand, y: Operand) -> Value:
    """sqrt(x^2 + y^2) without overflow on the way."""
    dtype = out_dtype(b)
    left, right = (b.apply("abs", lift(b, t, dtype)) for t in (x, y))
    high, low = b.apply("maximum", left, right), b.apply("minimum", left, right)
    ratio = low / high
    length = b.where(high.equals(0.0), 0.0, high * b.apply("sqrt", b.apply("fma", ratio, ratio, b.const(1, high.dtype))))
    endless = left.equals(float("inf")) | right.equals(float("inf"))
    return store(b, b.where(endless, float("inf"), length))


def log_add_exp(exp: str, log: Callable[[Builder, Value], Value]) -> Rule:
    """log(e^x + e^y), by the larger operand, so that nothing overflows."""
    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        dtype = out_dtype(b)
        left, right = lift(b, x, dtype), lift(b, y, dtype)
        same_end = left.equals(right) & b.apply("isinf", left)
        gap = b.apply("abs", left - right)
        total = b.apply("maximum", left, right) + log(b, b.apply(exp, -gap))
        return store(b, b.where(same_end, left, total))
    return rule


# -- three operands ----------------------------------------------------------------------------------

def where(b: Builder, mask: Operand, x: Argument, y: Argument) -> Value:
    dtype = out_dtype(b)
    chosen = b.where(b.cast(b.broadcast(mask), torch.bool),
                     lift(b, _exact(b, x), dtype), lift(b, _exact(b, y), dtype))
    return store(b, chosen)


def _exact(b: Builder, a: Argument) -> Argument:
    return a if isinstance(a, Operand) else exact(b, a, out_dtype(b))


def masked_fill(b: Builder, x: Operand, mask: Operand, value: Argument) -> Value:
    return where(b, mask, value, x)


def clamp(b: Builder, x: Operand, min: Argument | None = None, max: Argument | None = None) -> Value:
    """The bounds are applied from below, then from above; a NaN anywhere is the result."""
    dtype = out_dtype(b)
    value = lift(b, x, dtype)
    for bound, scalar in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            value = b.apply(scalar, value, lift(b, _exact(b, bound), dtype))
    return store(b, value)


def clamp_max(b: Builder, x: Operand, max: Argument) -> Value:
    return clamp(b, x, None, max)


def addcmul(b: Builder, x: Operand, y: Operand, z: Operand, *, value: Argument = 1) -> Value:
    dtype = out_dtype(b)
    start, left, right = (lift(b, t, dtype) for t in (x, y, z))
    scaled = left if isinstance(value, bool | int | float) and value == 1 else literal(b, value, dtype) * left  # type: ignore[arg-type]
    return store(b, b.apply("fma", scaled, right, start) if dtype.is_floating_point else start + scaled * right)


def addcdiv(b: Builder, x: Operand, y: Operand, z: Operand, *, value: Argument = 1) -> Value:
    dtype = out_dtype(b)
    if not dtype.is_floating_point:
        refuse(b, "divides integers.")
    start, left, right = (lift(b, t, dtype) for t in (x, y, z))
    scaled = left if isinstance(value, bool | int | float) and value == 1 else literal(b, value, dtype) * left  # type: ignore[arg-type]
    return store(b, start + scaled / right)


def lerp(b: Builder, start: Operand, end: Operand, weight: Argument) -> Value:
    """Measured from the nearer end, so that the weights 0 and 1 are exact."""
    dtype = out_dtype(b)
    first, last, w = lift(b, start, dtype), lift(b, end, dtype), lift(b, weight, dtype)
    near = b.apply("abs", w) < 0.5
    return store(b, b.apply("fma", b.where(near, w, w - 1.0), last - first, b.where(near, first, last)))


# -- conversion --------------------------------------------------------------------------------------

def convert(b: Builder, x: Operand, *_: Any, **__: Any) -> Value:
    """A copy in the result's dtype; on another device it is no loop."""
    out = b.call.out[0]
    if out is not None and getattr(out, "device", x.type.device) != x.type.device:
        refuse(b, f"copies from {x.type.device} to another device.")
    return store(b, b.broadcast(x))


def bitcast(b: Builder, x: Operand, dtype: torch.dtype) -> Value:
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != x.type.dtype.itemsize:
        refuse(b, "reads bits as a dtype of another width.")
    value = b.broadcast(x)
    return value if value.dtype == dtype else b.apply("bitcast", value, dtype=dtype)


# -- the table ---------------------------------------------------------------------------------------

SAME_NAME = (
    "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid",
    "reciprocal", "neg",
)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _overloads(packet: Any, rule: Rule, *names: str) -> dict[Any, Rule]:
    """``rule`` for those overloads of ``packet`` that this PyTorch has."""
    return {getattr(packet, name): rule for name in names if name in packet.overloads()}


RULES: Mapping[Any, Rule] = {
    **{getattr(aten, name).default: unary(name) for name in SAME_NAME},
    **{getattr(aten, name).default: rounding(name) for name in ("floor", "ceil", "trunc", "round")},
    aten.round.decimals: round_decimals,
    aten.abs.default: absolute, aten.sign.default: sign, aten.sgn.default: sign, aten.frac.default: frac,
    aten.signbit.default: signbit, aten.sinc.default: sinc, aten.logit.default: logit,
    aten.special_entr.default: entr, aten.nan_to_num.default: nan_to_num,
    aten.isnan.default: float_test(lambda b, x: b.apply("isnan", x)),
    aten.isinf.default: float_test(lambda b, x: b.apply("isinf", x)),
    aten.isposinf.default: float_test(lambda b, x: x.equals(float("inf"))),
    aten.isneginf.default: float_test(lambda b, x: x.equals(float("-inf"))),
    aten.bitwise_not.default: bitwise_not, aten.logical_not.default: logical_not,
    **_overloads(aten.add, add, "Tensor", "Scalar"), **_overloads(aten.sub, sub, "Tensor", "Scalar"),
    **_overloads(aten.rsub, rsub, "Tensor", "Scalar"), **_overloads(aten.mul, mul, "Tensor", "Scalar"),
    **_overloads(aten.div, div, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **_overloads(aten.true_divide, div, "Tensor", "Scalar"),
    **_overloads(aten.floor_divide, floor_divide, "default", "Scalar"),
    **_overloads(aten.remainder, remainder("mod"), "Tensor", "Scalar", "Scalar_Tensor"),
    **_overloads(aten.fmod, remainder("fmod"), "Tensor", "Scalar"),
    aten.pow.Tensor_Scalar: pow_scalar, aten.pow.Tensor_Tensor: power, aten.pow.Scalar: power,
    aten.atan2.default: binary("atan2"), aten.nextafter.default: next_after,
    **_overloads(aten.copysign, binary("copysign"), "Tensor", "Scalar"),
    **{o: r for name in COMPARISONS
       for o, r in _overloads(getattr(aten, name), comparison(name), "Tensor", "Scalar").items()},
    **{o: r for name in ("and", "or", "xor")
       for o, r in _overloads(getattr(aten, f"bitwise_{name}"), bitwise(name), "Tensor", "Scalar", "Scalar_Tensor").items()},
    **{getattr(aten, f"logical_{name}").default: logical(name) for name in ("and", "or", "xor")},
    **_overloads(aten.bitwise_left_shift, shift("shl"), "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    **_overloads(aten.bitwise_right_shift, shift("shr"), "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    **_overloads(aten.__lshift__, shift("shl"), "Tensor", "Scalar"),
    **_overloads(aten.__rshift__, shift("shr"), "Tensor", "Scalar"),
    aten.maximum.default: extremum("maximum"), aten.minimum.default: extremum("minimum"),
    aten.fmax.default: number_extremum("maximum"), aten.fmin.default: number_extremum("minimum"),
    **_overloads(aten.xlogy, xlogy("log"), "Tensor", "Scalar_Self", "Scalar_Other"),
    **_overloads(aten.special_xlog1py, xlogy("log1p"), "default", "self_scalar", "other_scalar"),
    aten.heaviside.default: heaviside, aten.hypot.default: hypot,
    aten.logaddexp.default: log_add_exp("exp", lambda b, x: b.apply("log1p", x)),
    aten.logaddexp2.default: log_add_exp("exp2", lambda b, x: b.apply("log1p", x) * (1 / 0.6931471805599453)),
    **_overloads(aten.where, where, "self", "ScalarSelf", "ScalarOther", "Scalar"),
    **_overloads(aten.masked_fill, masked_fill, "Scalar", "Tensor"),
    **_overloads(aten.clamp, clamp, "default", "Tensor"),
    **_overloads(aten.clamp_min, clamp, "default", "Tensor"), **_overloads(aten.clamp_max, clamp_max, "default", "Tensor"),
    aten.addcmul.default: addcmul, aten.addcdiv.default: addcdiv, **_overloads(aten.lerp, lerp, "Scalar", "Tensor"),
    aten._to_copy.default: convert, prims.convert_element_type.default: convert,
    aten.clone.default: identity, aten.alias.default: identity, aten.detach.default: identity,
    aten.lift_fresh_copy.default: identity, aten.lift_fresh.default: identity,
    aten.view.dtype: bitcast,
}
