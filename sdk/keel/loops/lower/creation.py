"""Tensors made from numbers alone: constants, ranges, identity matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from keel.loops.builder import Builder, Number, Rule, Value
from keel.types import Dim

from .rule_arguments import exact, literal, not_lowerable, out_dtype, store

aten = torch.ops.aten
prims = torch.ops.prims


def constant(value: Number) -> Rule:
    """A rule for tensors of one value: zeros, ones, and uninitialized memory, which gets a value so that runs agree."""

    def rule(b: Builder, *_: Any, **__: Any) -> Value:
        return store(b, literal(b, value, out_dtype(b)))

    return rule


def full(b: Builder, _like: Any, value: Number | Dim, *_: Any, **__: Any) -> Value:
    return store(b, literal(b, exact(b, value, out_dtype(b)), out_dtype(b)))


def new_full(b: Builder, _like: Any, _size: Any, value: Number | Dim, *_: Any, **__: Any) -> Value:
    return full(b, _like, value)


def scalar_tensor(b: Builder, value: Number | Dim, **_: Any) -> Value:
    return full(b, None, value)


def arange(b: Builder, end: Number | Dim, **_: Any) -> Value:
    return progression(b, 0, 1, end)


def arange_start(b: Builder, start: Number | Dim, end: Number | Dim, **_: Any) -> Value:
    return progression(b, start, 1, end)


def arange_step(b: Builder, start: Number | Dim, end: Number | Dim, step: Number | Dim = 1, **_: Any) -> Value:
    return progression(b, start, step, end)


def iota(b: Builder, length: Dim, *, start: Dim, step: Dim, **_: Any) -> Value:
    return progression(b, start, step, 0)


def progression(b: Builder, start: Number | Dim, step: Number | Dim, end: Number | Dim) -> Value:
    """start + i * step: exact for integers, otherwise in float64 and rounded once, as in eager. In an integer dtype the
    numbers are rounded towards zero first.
    """
    (i,) = b.at
    if not out_dtype(b).is_floating_point:
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    if any(isinstance(v, float) and not v.is_integer() for v in (start, step)):
        place = b.cast(b.position(i), torch.float64)
        return store(b, b.apply("fma", place, b.number(step, torch.float64), b.number(start, torch.float64)))
    first, stride = (int(v) if isinstance(v, float) else v for v in (start, step))
    return store(b, b.position(i * stride + first))


def eye(b: Builder, *_: Any, **__: Any) -> Value:
    i, j = b.at
    return store(b, b.position(i).equals(b.position(j)))


def linspace(b: Builder, start: Number, end: Number, steps: Dim, **_: Any) -> Value:
    """Counts from the nearer end, so that both ends are exact."""
    if not isinstance(steps, int) or not all(isinstance(v, bool | int | float) for v in (start, end)):
        not_lowerable(b, "has bounds or a length known only at run time.")
    dtype = torch.float64 if out_dtype(b) == torch.float64 else torch.float32
    if steps == 1:
        return store(b, literal(b, start, dtype))
    step = (float(end) - float(start)) / (steps - 1)
    i = b.position(b.at[0])
    up = b.apply("fma", b.cast(i, dtype), b.const(step, dtype), b.const(start, dtype))
    down = b.apply("fma", b.cast((steps - 1) - i, dtype), b.const(-step, dtype), b.const(end, dtype))
    return store(b, b.where(i < steps // 2, up, down))


RULES: Mapping[Any, Rule] = {
    **{
        getattr(aten, name).default: constant(0)
        for name in (
            "zeros",
            "zeros_like",
            "new_zeros",
            "empty_like",
            "new_empty",
            "new_empty_strided",
            "empty_strided",
            "empty_permuted",
        )
    },
    aten.empty.memory_format: constant(0),
    **{getattr(aten, name).default: constant(1) for name in ("ones", "ones_like", "new_ones")},
    aten.full.default: full,
    aten.full_like.default: full,
    aten.new_full.default: new_full,
    aten.scalar_tensor.default: scalar_tensor,
    aten.arange.default: arange,
    aten.arange.start: arange_start,
    aten.arange.start_step: arange_step,
    prims.iota.default: iota,
    aten.eye.default: eye,
    aten.eye.m: eye,
    aten.linspace.default: linspace,
}
