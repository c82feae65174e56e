"""Comparisons, bitwise and logical operators, minimum, maximum, ``where`` and ``clamp``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from keel.loops.builder import Builder, Operand, Rule, Value

from .rule_arguments import (
    Argument,
    bounds,
    exact,
    not_lowerable,
    out_dtype,
    overloads,
    promote,
    result_dtype,
    rounded,
    store,
)

aten = torch.ops.aten


def comparison(scalar: str) -> Rule:
    def rule(b: Builder, x: Operand, y: Argument) -> Value:
        common = result_dtype(x, y)
        return store(b, b.apply(scalar, rounded(b, x, common), rounded(b, y, common)))

    return rule


def bitwise(scalar: str) -> Rule:
    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        return b.apply(scalar, promote(b, x, dtype), promote(b, y, dtype))

    return rule


def logical(scalar: str) -> Rule:
    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        common = result_dtype(x, y)
        return store(b, b.apply(scalar, *(b.cast(rounded(b, t, common), torch.bool) for t in (x, y))))

    return rule


def shift(scalar: str) -> Rule:
    """A shift by a negative amount, or by at least the width, drops every bit. A right shift fills with the sign."""

    def rule(b: Builder, x: Argument, y: Argument) -> Value:
        dtype = out_dtype(b)
        if dtype.is_floating_point:
            not_lowerable(b, "shifts floating-point numbers.")
        value, amount = promote(b, x, dtype), promote(b, y, dtype)
        info = torch.iinfo(dtype)
        last = info.bits - 1
        beyond = amount > last if info.min == 0 else (amount < 0) | (amount > last)
        done = b.apply(scalar, value, b.where(beyond, 0, amount))
        rest = b.apply("shr", value, last) if scalar == "shr" and info.min < 0 else 0
        return b.where(beyond, rest, done)

    return rule


def extremum(scalar: str) -> Rule:
    """maximum or minimum. NaN wins. On bools these are ``or`` and ``and``."""

    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        dtype = out_dtype(b)
        return store(b, _farther(b, scalar, promote(b, x, dtype), promote(b, y, dtype)))

    return rule


def _farther(b: Builder, scalar: str, left: Value, right: Value) -> Value:
    if left.dtype == torch.bool:
        return left | right if scalar == "maximum" else left & right
    return b.apply(scalar, left, right)


def number_extremum(scalar: str) -> Rule:
    """fmax or fmin. A number wins over NaN."""
    plain = extremum(scalar)

    def rule(b: Builder, x: Operand, y: Operand) -> Value:
        dtype = out_dtype(b)
        if not dtype.is_floating_point:
            return plain(b, x, y)  # type: ignore[no-any-return]
        left, right = promote(b, x, dtype), promote(b, y, dtype)
        best = b.where(b.apply("isnan", right), left, b.apply(scalar, left, right))
        return store(b, b.where(b.apply("isnan", left), right, best))

    return rule


def where(b: Builder, mask: Operand, x: Argument, y: Argument) -> Value:
    dtype = out_dtype(b)
    chosen = b.where(
        b.cast(b.broadcast(mask), torch.bool), promote(b, _exact(b, x), dtype), promote(b, _exact(b, y), dtype)
    )
    return store(b, chosen)


def _exact(b: Builder, a: Argument) -> Argument:
    return a if isinstance(a, Operand) else exact(b, a, out_dtype(b))


def masked_fill(b: Builder, x: Operand, mask: Operand, value: Argument) -> Value:
    return where(b, mask, value, x)


def clamp(b: Builder, x: Operand, min: Argument | None = None, max: Argument | None = None) -> Value:
    """Applies the lower bound, then the upper one. If an operand is NaN, so is the result. On bools these are ``or``
    and ``and``.
    """
    dtype = out_dtype(b)
    value = promote(b, x, dtype)
    for scalar, bound in bounds(b, min, max, dtype):
        value = _farther(b, scalar, value, promote(b, _exact(b, bound), dtype))
    return store(b, value)


def clamp_max(b: Builder, x: Operand, max: Argument) -> Value:
    return clamp(b, x, None, max)


CHOOSING: Mapping[Any, Rule] = {
    **overloads(aten.where, where, "self", "ScalarSelf", "ScalarOther", "Scalar"),
    **overloads(aten.masked_fill, masked_fill, "Scalar", "Tensor"),
}

RULES: Mapping[Any, Rule] = {
    **CHOOSING,
    **{
        o: r
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for o, r in overloads(getattr(aten, name), comparison(name), "Tensor", "Scalar").items()
    },
    **{
        o: r
        for name in ("and", "or", "xor")
        for o, r in overloads(
            getattr(aten, f"bitwise_{name}"), bitwise(name), "Tensor", "Scalar", "Scalar_Tensor"
        ).items()
    },
    **{getattr(aten, f"logical_{name}").default: logical(name) for name in ("and", "or", "xor")},
    **overloads(aten.bitwise_left_shift, shift("shl"), "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    **overloads(aten.bitwise_right_shift, shift("shr"), "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    **overloads(aten.__lshift__, shift("shl"), "Tensor", "Scalar"),
    **overloads(aten.__rshift__, shift("shr"), "Tensor", "Scalar"),
    aten.maximum.default: extremum("maximum"),
    aten.minimum.default: extremum("minimum"),
    aten.fmax.default: number_extremum("maximum"),
    aten.fmin.default: number_extremum("minimum"),
    **overloads(aten.clamp, clamp, "default", "Tensor"),
    **overloads(aten.clamp_min, clamp, "default", "Tensor"),
    **overloads(aten.clamp_max, clamp_max, "default", "Tensor"),
}
