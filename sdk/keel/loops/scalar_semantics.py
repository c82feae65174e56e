"""The semantics of scalar ops: one table of torch functions, on tensors that have one element per loop point.

Undefined cases (division by zero, a shift by too many bits) yield some value and never stop the program, as on a
device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

WIDE_UNSIGNED = frozenset((torch.uint16, torch.uint32, torch.uint64))
"""Dtypes for which torch lacks most operators, so that numpy computes."""


def evaluate_op(op: str, args: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    """The result of ``op``, of ``dtype``; operands broadcast."""
    if op == "cast":
        return cast(args[0], dtype)
    if op == "bitcast":
        return args[0].contiguous().view(dtype)
    if args[-1].dtype in WIDE_UNSIGNED:
        return _by_numpy(op, args)
    return MEANINGS[op](*args)


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype in WIDE_UNSIGNED and x.dtype.is_floating_point:
        x = x.to(torch.int64)
    return x.to(dtype)


def _divisor(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ``y`` with 1 in place of the divisors that trap, 0 and -1 (which overflows at the least integer), and a
    mask of where ``y`` is -1.
    """
    minus = (y == -1) if y.dtype.is_signed else torch.zeros_like(y, dtype=torch.bool)
    return torch.where((y == 0) | minus, torch.ones_like(y), y), minus


def _floordiv(x: Tensor, y: Tensor) -> Tensor:
    by, minus = _divisor(x, y)
    return torch.where(minus, -x, torch.div(x, by, rounding_mode="floor"))


def _truncdiv(x: Tensor, y: Tensor) -> Tensor:
    by, minus = _divisor(x, y)
    return torch.where(minus, -x, torch.div(x, by, rounding_mode="trunc"))


def _fmod(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_floating_point:  # torch's fmod is NaN if x / y is beyond about 2^31
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.asarray(np.fmod(x.numpy(), y.numpy())))
    return torch.fmod(x, _divisor(x, y)[0])  # the remainder by -1 is 0, as by 1


def _mod(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_floating_point:
        r = _fmod(x, y)
        return torch.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)
    return torch.remainder(x, _divisor(x, y)[0])


def _fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x * y + z, rounded once (f32), or with a last-place error where the exact sum needs more than 106 bits (f64)."""
    if x.dtype == torch.float32:
        product, add = x.double() * y.double(), z.double()
        total = product + add
        low = _sum_error(product, add, total)
        # Rounding to odd first makes the second rounding, to f32, the only one that counts.
        even = (total.view(torch.int64) & 1) == 0
        toward = torch.where(low > 0, torch.inf, -torch.inf).to(total.dtype)
        odd = torch.where((low != 0) & even & total.isfinite(), torch.nextafter(total, toward), total)
        return odd.to(torch.float32)
    (a, i), (b, j) = torch.frexp(x), torch.frexp(y)  # mantissas in [1/2, 1), whose product does not underflow
    product, add = a * b, _shifted(z, -(i + j))
    total = product + add
    low = _sum_error(product, add, total) + _product_error(a, b, product)
    exact = torch.where(low != 0, total + low, total)
    result = torch.where(exact.isfinite(), _shifted(exact, i + j), z)  # otherwise the product is negligible next to z
    plain = (x == 0) | (y == 0) | ~(x.isfinite() & y.isfinite())
    return torch.where(plain, x * y + z, result)


def _shifted(x: Tensor, places: Tensor) -> Tensor:
    """x * 2^places, rounded at most once. Three steps are used, because 2^places itself may not be a float64."""
    step = torch.div(places, 3, rounding_mode="trunc")
    factor = torch.exp2(step.double())
    return x * factor * factor * torch.exp2((places - 2 * step).double())


def _sum_error(a: Tensor, b: Tensor, total: Tensor) -> Tensor:
    """a + b - total, exactly (Knuth)."""
    v = total - a
    return (a - (total - v)) + (b - v)


def _product_error(x: Tensor, y: Tensor, product: Tensor) -> Tensor:
    """x * y - product, exactly (Dekker)."""

    def split(v: Tensor) -> tuple[Tensor, Tensor]:
        k = v * 134217729.0
        high = k - (k - v)
        return high, v - high

    (a, b), (c, d) = split(x), split(y)
    return ((a * c - product) + a * d + b * c) + b * d


MEANINGS: Mapping[str, Callable[..., Tensor]] = {
    "where": torch.where,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "sigmoid": torch.sigmoid,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "mod": _mod,
    "fmod": _fmod,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "fma": _fma,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
}

_UNSIGNED: Mapping[str, Callable[..., Any]] = {
    "where": np.where,
    "neg": np.negative,
    "abs": np.positive,
    "sign": np.sign,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "truncdiv": np.floor_divide,
    "mod": np.remainder,
    "fmod": np.fmod,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": np.left_shift,
    "shr": np.right_shift,
}


def _by_numpy(op: str, args: tuple[Tensor, ...]) -> Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(_UNSIGNED[op](*(a.numpy() for a in args))))
