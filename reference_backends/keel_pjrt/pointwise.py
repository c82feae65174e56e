"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import Array, lax

from keel_pjrt.sites import FLOAT_INFO, Lowering, Site, flushed, in_float32, is_float, is_integer


def _unary(function: Callable[[Array], Array]) -> Lowering:
    return in_float32(lambda site, self: function(self))


def _binary(function: Callable[[Array, Array], Array]) -> Lowering:
    return in_float32(lambda site, self, other: function(self, other))


def _exp2(x: Array) -> Array:
    """The power of the fraction times that of the integer: XLA's own rounds x log(2)."""
    if jnp.iscomplexobj(x):
        return lax.exp(x * jnp.log(jnp.asarray(2, x.real.dtype)))
    floor = jnp.clip(jnp.round(x), -2200, 2200)
    part = lax.exp((x - floor) * np.asarray(np.log(2.0), x.dtype))
    first = jnp.floor(floor / 2).astype(jnp.int32)
    result = _scaled(_scaled(part, first), floor.astype(jnp.int32) - first)
    return jnp.where(jnp.isfinite(x), result, lax.exp(x))


def _scaled(x: Array, power: Array) -> Array:
    """``x`` times 2 to the power, which is cut to the exponents of normal numbers."""
    kind, fraction, bias = _layout(x.dtype)
    exponent = jnp.clip(power + bias, 1, 2 * bias).astype(kind)
    return x * lax.bitcast_convert_type(exponent << np.asarray(fraction, kind), x.dtype)


def _hyperbolic(sign: int, near_zero: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """(exp(x) + sign exp(-x)) / 2, where XLA's own rounds x + log(1/2)."""

    def function(x: Array) -> Array:
        if jnp.iscomplexobj(x):
            return near_zero(x)
        size = jnp.abs(x)
        power, half = lax.exp(size), lax.exp(size * 0.5)
        far = jnp.where(power == jnp.inf, (half * 0.5) * half, 0.5 * (power + sign / power))
        return jnp.where(size < 1, near_zero(x), far if sign > 0 else jnp.copysign(far, x))

    return function


def _digamma(x: Array) -> Array:
    return jnp.where(x == 0, jnp.copysign(jnp.asarray(jnp.inf, x.dtype), -x), lax.digamma(x))


def _log1p(x: Array) -> Array:
    """By log(u) x / (u - 1), with u the rounded sum (Kahan; Higham 2002, section 1.14.1). XLA's own, of float64, is off
    by up to 128 ulps.
    """
    if x.dtype != jnp.float64:
        return lax.log1p(x)
    u = lax.optimization_barrier(1 + x)  # the simplifier would make x of u - 1
    return jnp.where((u == 1) | (u == jnp.inf), x, lax.log(u) * (x / (u - 1)))


def _tanh(x: Array) -> Array:
    """Of exponentials far from 0, where XLA's own, of float64, is off by 5 ulps."""
    if x.dtype != jnp.float64:
        return lax.tanh(x)
    far = 1 - 2 / (lax.exp(2 * jnp.abs(x)) + 1)
    return jnp.where(jnp.abs(x) < 1, lax.tanh(x), jnp.copysign(far, x))


def _atanh(x: Array) -> Array:
    return lax.atanh(x) if jnp.iscomplexobj(x) else 0.5 * (_log1p(x) - _log1p(-x))


def _sinh_near_zero(x: Array) -> Array:
    """The series, for numbers of size less than 1."""
    if jnp.iscomplexobj(x):
        return lax.sinh(x)
    square, total = x * x, jnp.ones_like(x)
    for n in range(20, 0, -2):
        total = 1 + total * square / (n * (n + 1))
    return x * total


def _zeta(x: Array, q: Array) -> Array:
    """JAX's gives NaN for poles."""
    return jnp.where((x > 1) & (q <= 0) & (q == jnp.floor(q)), jnp.inf, special.zeta(x, q))


def _in_float64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Of float32, rounded once."""
    return lambda x: function(x.astype(jnp.float64)).astype(x.dtype) if x.dtype == jnp.float32 else function(x)


def _nextafter(site: Site, self: Array, other: Array) -> Array:
    """Of bits, as integers in the order of the numbers."""
    x, y = jnp.broadcast_arrays(self, other)
    kind, _, _ = _layout(x.dtype)
    bits = kind.itemsize * 8
    signed = jnp.dtype(f"int{bits}")
    low = np.asarray((1 << (bits - 1)) - 1, signed)
    a, b = (lax.bitcast_convert_type(each, signed) for each in (x, y))
    a, b = (jnp.where(each < 0, -(each & low), each) for each in (a, b))
    moved = jnp.where(b > a, a + 1, a - 1)
    ordered = jnp.where(moved < 0, -moved | ~low, moved)
    ordered = jnp.where(moved == 0, jnp.where(a < 0, ~low, np.asarray(0, signed)), ordered)
    result = jnp.where(a == b, y, lax.bitcast_convert_type(ordered, x.dtype))
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), jnp.asarray(jnp.nan, x.dtype), result)


def _of_bits(function: Callable[..., Array]) -> Lowering:
    """Of operands as they are: 16-bit floats too."""
    return lambda site, **operands: function(*operands.values())


def _same(x: Array) -> Array:
    return x


def _of_floats(function: Callable[[Array], Array]) -> Lowering:
    """The identity of integers."""
    return _unary(lambda x: function(x) if is_float(x) else x)


def _sign(x: Array) -> Array:
    return x if x.dtype == bool else jnp.where(jnp.isnan(x), 0, lax.sign(x))


def _add(site: Site, self: Array, other: Array, alpha: Any = 1) -> Array:
    if self.dtype == bool:
        return self | (other & bool(alpha))
    return self + (other if alpha == 1 else other * jnp.asarray(alpha, other.dtype))


def _sub(site: Site, self: Array, other: Array, alpha: Any = 1) -> Array:
    return self - (other if alpha == 1 else other * jnp.asarray(alpha, other.dtype))


def _div(site: Site, self: Array, other: Array, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return self / other
    if is_integer(self):
        return (
            jnp.floor_divide(self, other) if rounding_mode == "floor" else lax.div(*jnp.broadcast_arrays(self, other))
        )
    return jnp.trunc(self / other) if rounding_mode == "trunc" else _floor_div(self, other)


def _floor_div(x: Array, y: Array) -> Array:
    """PyTorch's: from the exact remainder, so that the quotient cannot be rounded over an integer."""
    x, y = jnp.broadcast_arrays(flushed(x), flushed(y))
    left = lax.rem(x, y)
    quotient = (x - left) / y - ((left != 0) & ((y < 0) != (left < 0))).astype(x.dtype)
    floor = jnp.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    floor = jnp.where(quotient != 0, floor, jnp.copysign(jnp.zeros_like(x), x / y))
    return jnp.where(y == 0, x / y, floor)


def _remainder(x: Array, y: Array) -> Array:
    x, y = jnp.broadcast_arrays(flushed(x), flushed(y))
    left = lax.rem(x, y)
    return jnp.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)


def _fmod(x: Array, y: Array) -> Array:
    return lax.rem(*jnp.broadcast_arrays(flushed(x), flushed(y)))


def _pow(site: Site, self: Array, exponent: Array) -> Array:
    base, exponent = jnp.broadcast_arrays(self, exponent)
    if not is_integer(base):
        return lax.pow(flushed(base), flushed(exponent))
    odd = (exponent & 1).astype(bool)
    negative = jnp.where(
        base == 1, 1, jnp.where((base == jnp.array(-1).astype(base.dtype)), jnp.where(odd, base, 1), 0)
    )

    def step(_: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        power, square, left = state
        return jnp.where(left & 1, power * square, power), square * square, lax.shift_right_logical(left, 1 + left * 0)

    bits = 8 * base.dtype.itemsize
    power = lax.fori_loop(0, bits, step, (jnp.ones_like(base), base, exponent))[0]
    return jnp.where(exponent < 0, negative.astype(base.dtype), power)


def _gcd(x: Array, y: Array) -> Array:
    """Euclid's algorithm. The least integer is its own magnitude, with its sign, as in PyTorch."""

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b = state
        return jnp.where(a == 0, a, lax.rem(b, jnp.where(a == 0, 1, a))), jnp.where(a == 0, b, a)

    sizes = tuple(jnp.abs(each) for each in jnp.broadcast_arrays(x, y))
    return lax.while_loop(lambda state: jnp.any(state[0] != 0), step, sizes)[1]


def _is_nan(x: Array) -> Array:
    return x != x


def _shifted_down(x: Array, y: Array) -> Array:
    """With zeros for numbers without a sign."""
    shift = lax.shift_right_logical if x.dtype.kind == "u" else lax.shift_right_arithmetic
    return shift(x, y)


def _shift(function: Callable[[Array, Array], Array]) -> Lowering:
    return _of_bits(lambda x, y: function(*jnp.broadcast_arrays(x, y)))


def _where(site: Site, condition: Array, self: Array, other: Array) -> Array:
    """Flushed as the comparisons are that choose: a composite would follow neither arithmetic."""
    return flushed(jnp.where(condition.astype(bool), self, other))


def _fma(site: Site, self: Array, tensor1: Array, tensor2: Array, value: Any = 1) -> Array:
    """In float64, in which the product of two float32 numbers is exact."""
    x, y, z = (each.astype(jnp.float64) if is_float(each) else each for each in (self, tensor1, tensor2))
    if value != 1:
        y = (y * jnp.asarray(value, y.dtype)).astype(tensor1.dtype).astype(y.dtype)
    return x + y * z


def _layout(dtype: Any) -> tuple[Any, int, int]:
    """The unsigned integer of a float's size, the bits of its fraction, and the bias of its exponent."""
    info = FLOAT_INFO(dtype)
    return jnp.dtype(f"uint{info.bits}"), info.nmant, 1 - int(info.minexp)


def _frexp(site: Site, self: Array) -> tuple[Array, Array]:
    """Of bits, since XLA takes subnormal numbers for 0."""
    kind, fraction, bias = _layout(self.dtype)
    width = kind.itemsize * 8

    def number(value: int) -> Any:
        return np.asarray(value, kind)

    bits, ones = lax.bitcast_convert_type(self, kind), number((1 << fraction) - 1)
    low = bits & ones
    power = (bits >> number(fraction)) & number((1 << (width - 1 - fraction)) - 1)
    shift = lax.clz(low) - number(width - 1 - fraction)
    small = (power == 0) & (low != 0)
    low = jnp.where(small, (low << shift) & ones, low)
    exponent = jnp.where(small, 1 - shift.astype(jnp.int32), power.astype(jnp.int32)) - (bias - 1)
    half = (bits & number(1 << (width - 1))) | number((bias - 1) << fraction) | low
    is_plain = (bits << number(1) == 0) | ~jnp.isfinite(self)
    mantissa = jnp.where(is_plain, self, lax.bitcast_convert_type(half, self.dtype))
    return mantissa, jnp.where(is_plain, 0, exponent)


def _complex_parts(function: Callable[[Array], Array], x: Array) -> Array:
    return function(x.real) | function(x.imag) if jnp.iscomplexobj(x) else function(x)


UNARY: Mapping[str, Callable[[Array], Array]] = {
    "reciprocal": lambda x: 1 / x,
    "sqrt": lax.sqrt,
    "rsqrt": lambda x: 1 / lax.sqrt(x),
    "exp": lax.exp,
    "exp2": _exp2,
    "expm1": lax.expm1,
    "log": lax.log,
    "log2": jnp.log2,
    "log10": jnp.log10,
    "log1p": _log1p,
    "sin": lax.sin,
    "cos": lax.cos,
    "tan": lax.tan,
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "sinh": _hyperbolic(-1, _sinh_near_zero),
    "cosh": _hyperbolic(1, lax.cosh),
    "tanh": _tanh,
    "asinh": lax.asinh,
    "acosh": lax.acosh,
    "atanh": _atanh,
    "sigmoid": lax.logistic,
    "erf": lax.erf,
    "erfc": _in_float64(lax.erfc),
    "erfinv": _in_float64(lax.erf_inv),
    "lgamma": _in_float64(lax.lgamma),
    "digamma": _in_float64(_digamma),
    "i0": special.i0,
    "i0e": special.i0e,
    "i1": special.i1,
    "i1e": special.i1e,
    "erfcx": special.erfcx,
    "ndtri": special.ndtri,
}
BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "mul": lambda x, y: x & y if x.dtype == bool else x * y,
    "remainder": _remainder,
    "fmod": _fmod,
    "atan2": lambda x, y: lax.atan2(*jnp.broadcast_arrays(flushed(x), flushed(y))),
    "maximum": lambda x, y: flushed(jnp.maximum(x, y)),
    "minimum": lambda x, y: flushed(jnp.minimum(x, y)),
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "zeta": _zeta,
    "igamma": special.gammainc,
    "igammac": special.gammaincc,
}
TABLE: Mapping[str, Lowering] = {
    **{name: _unary(function) for name, function in UNARY.items()},
    **{name: _binary(function) for name, function in BINARY.items()},
    "abs": _of_bits(jnp.abs),
    "neg": _of_bits(lax.neg),
    "sign": _of_bits(_sign),
    "ceil": _of_floats(lax.ceil),
    "floor": _of_floats(lax.floor),
    "trunc": _of_floats(jnp.trunc),
    "round": _of_floats(partial(lax.round, rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN)),
    "bitwise_not": _of_bits(lax.bitwise_not),
    "isnan": _of_bits(partial(_complex_parts, _is_nan)),
    "isinf": _of_bits(partial(_complex_parts, lambda x: jnp.isinf(x))),
    "frexp": _frexp,
    "add": in_float32(_add),
    "sub": in_float32(_sub),
    "div": in_float32(_div),
    "pow": in_float32(_pow),
    "bitwise_and": _of_bits(jnp.bitwise_and),
    "bitwise_or": _of_bits(jnp.bitwise_or),
    "bitwise_xor": _of_bits(jnp.bitwise_xor),
    "shift_left": _shift(lax.shift_left),
    "shift_right": _shift(_shifted_down),
    "copysign": _of_bits(jnp.copysign),
    "nextafter": _nextafter,
    "gcd": _of_bits(_gcd),
    "where": _where,
    "fma": in_float32(_fma),
}
