"""Pooling and its gradients, which reduce over windows of the last dimensions, and nearest-neighbor resampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

from keel.loops.builder import Builder, Operand, Rule, Value
from keel.loops.index import Index, flatten, floordiv
from keel.loops.monoids import lowest
from keel.types import Dim, as_dim, contiguous_strides

from .rule_arguments import not_lowerable, out_dtype, store
from .windows import conjunction, inside, spread

aten = torch.ops.aten
NOWHERE = torch.iinfo(torch.int64).max


# -- averages ----------------------------------------------------------------------------------------


def avg_pool(n: int) -> Rule:
    def rule(
        b: Builder,
        x: Operand,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        kernel, padding = spread(kernel, n), spread(padding, n)
        stride = spread(stride, n) if stride else kernel
        batch, out = b.at[:-n], b.at[-n:]
        sizes = x.type.shape[-n:]
        within = b.fold_over(kernel)
        at = [o * s - p + w for o, s, p, w in zip(out, stride, padding, within, strict=True)]
        all_full = not any(padding) and not ceil_mode
        mask = None if all_full else conjunction([inside(b, i, size) for i, size in zip(at, sizes, strict=True)])
        element = x[[*batch, *at]] if mask is None else x.where(mask, [*batch, *at])
        total = b.reduce("sum", b.math(element))
        count = _count(b, out, kernel, stride, padding, sizes, count_include_pad, divisor_override, all_full)
        if not _math(b).is_floating_point:
            return store(b, b.apply("truncdiv", total, b.cast(count, _math(b))))
        return store(b, total / b.cast(count, _math(b)))

    return rule


def _math(b: Builder) -> torch.dtype:
    dtype = out_dtype(b)
    if not dtype.is_floating_point:
        return dtype
    return torch.float64 if dtype == torch.float64 else torch.float32


def _count(
    b: Builder,
    out: Sequence[Index],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    sizes: Sequence[Dim],
    include_pad: bool,
    override: int | None,
    all_full: bool,
) -> Value:
    """The divisor of a window's sum: the number of its elements, with or without those in the padding, but without
    those beyond the padding.
    """
    if override is not None:
        return b.const(override, torch.int64)
    if all_full:
        return b.const(math.prod(kernel), torch.int64)
    count: Value | None = None
    for o, k, s, p, size in zip(out, kernel, stride, padding, sizes, strict=True):
        start, extent = b.position(o * s - p), b.number(size, torch.int64)
        end = b.apply("minimum", start + k, extent + p)
        if not include_pad:
            start, end = b.apply("maximum", start, 0), b.apply("minimum", end, extent)
        count = end - start if count is None else count * (end - start)
    assert count is not None
    return count


def avg_pool_backward(n: int) -> Rule:
    """Each input element sums its share of the gradients of the windows that contain it."""

    def rule(
        b: Builder,
        grad: Operand,
        x: Operand,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Value:
        kernel, padding = spread(kernel, n), spread(padding, n)
        stride = spread(stride, n) if stride else kernel
        batch, here = b.at[:-n], b.at[-n:]
        back = b.fold_over(-(-k // s) for k, s in zip(kernel, stride, strict=True))
        windows, masks = [], []
        for i, k, s, p, size, t in zip(here, kernel, stride, padding, grad.type.shape[-n:], back, strict=True):
            window = floordiv(i + p, s) - t
            windows.append(window)
            masks.append(inside(b, window, size) & (b.position(i + p - window * s) < k))
        element = b.math(grad.where(conjunction(masks), [*batch, *windows]))
        all_full = not any(padding) and not ceil_mode
        sizes = x.type.shape[-n:]
        count = _count(b, windows, kernel, stride, padding, sizes, count_include_pad, divisor_override, all_full)
        share = b.where(conjunction(masks), element / b.cast(count, element.dtype), 0.0)
        return store(b, b.reduce("sum", share))

    return rule


def _adaptive(o: Index, size: Dim, outs: Dim) -> tuple[Index, Index]:
    """The start and end of adaptive window ``o`` of ``outs`` windows over ``size`` elements."""
    return floordiv(o * size, outs), floordiv(o * size + size + (outs - 1), outs)


def _longest(size: Dim, outs: Dim) -> Dim:
    """The greatest length of an adaptive window."""
    if isinstance(size, int) and isinstance(outs, int):
        return max((-(-(o + 1) * size // outs) - o * size // outs for o in range(outs)), default=1)
    if outs == 1:
        return size
    ratio = sympy.cancel(sympy.sympify(size) / outs)
    return as_dim(ratio if ratio.is_integer and ratio.is_polynomial() else sympy.floor(ratio) + 2)


def adaptive_avg_pool(n: int) -> Rule:
    def rule(b: Builder, x: Operand, _sizes: Sequence[Dim]) -> Value:
        if not _math(b).is_floating_point:
            not_lowerable(b, "averages integers.")
        batch, out = b.at[:-n], b.at[-n:]
        sizes, outs = x.type.shape[-n:], b.shape[-n:]
        within = b.fold_over(_longest(s, o) for s, o in zip(sizes, outs, strict=True))
        spans = [_adaptive(i, s, o) for i, s, o in zip(out, sizes, outs, strict=True)]
        at = [*batch, *(start + w for (start, _), w in zip(spans, within, strict=True))]
        masks = [
            b.position(w) < b.position(end - start)
            for (start, end), w in zip(spans, within, strict=True)
            if not (end - start).is_const
        ]
        total = b.reduce("sum", b.math(x.where(conjunction(masks), at) if masks else x[at]))
        return store(b, total / b.cast(_product(b, [end - start for start, end in spans]), _math(b)))

    return rule


def _product(b: Builder, lengths: Sequence[Index]) -> Value:
    total = b.position(lengths[0])
    for length in lengths[1:]:
        total = total * b.position(length)
    return total


def adaptive_avg_pool_backward(n: int) -> Rule:
    def rule(b: Builder, grad: Operand, x: Operand) -> Value:
        batch, here = b.at[:-n], b.at[-n:]
        sizes, outs = x.type.shape[-n:], grad.type.shape[-n:]
        after = b.fold_over(
            1 if sympy.sympify(s) % o == 0 else _longest(o, s) for s, o in zip(sizes, outs, strict=True)
        )
        windows, masks, lengths = [], [], []
        for i, size, o, t in zip(here, sizes, outs, after, strict=True):
            window = floordiv(i * o, size) + t
            start, end = _adaptive(window, size, o)
            windows.append(window)
            lengths.append(end - start)
            if not t.is_const:
                masks.append((b.position(window) < b.number(o, torch.int64)) & (b.position(start) <= b.position(i)))
        at = [*batch, *windows]
        element = b.math(grad.where(conjunction(masks), at) if masks else grad[at])
        share = element / b.cast(_product(b, lengths), element.dtype)
        return store(b, b.reduce("sum", b.where(conjunction(masks), share, 0.0) if masks else share))

    return rule


# -- maxima ------------------------------------------------------------------------------------------


def max_pool(n: int) -> Rule:
    """The maximum of each window and its flat index in the plane. Padding never wins. The first of equal elements wins,
    and so does the first NaN, where eager returns the index of the last NaN.
    """

    def rule(
        b: Builder,
        x: Operand,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> tuple[Value, Value]:
        kernel, padding, dilation = spread(kernel, n), spread(padding, n), spread(dilation, n)
        stride = spread(stride, n) if stride else kernel
        batch, out = b.at[:-n], b.at[-n:]
        sizes = x.type.shape[-n:]
        within = b.fold_over(kernel)
        at = [o * s - p + w * d for o, s, p, w, d in zip(out, stride, padding, within, dilation, strict=True)]
        if not any(padding) and not ceil_mode:
            return _largest(b, x, [*batch, *at], at, None)
        return _largest(b, x, [*batch, *at], at, conjunction([inside(b, i, n) for i, n in zip(at, sizes, strict=True)]))

    return rule


def adaptive_max_pool(n: int) -> Rule:
    def rule(b: Builder, x: Operand, _sizes: Sequence[Dim]) -> tuple[Value, Value]:
        batch, out = b.at[:-n], b.at[-n:]
        sizes, outs = x.type.shape[-n:], b.shape[-n:]
        within = b.fold_over(_longest(s, o) for s, o in zip(sizes, outs, strict=True))
        spans = [_adaptive(i, s, o) for i, s, o in zip(out, sizes, outs, strict=True)]
        at = [start + w for (start, _), w in zip(spans, within, strict=True)]
        masks = [
            b.position(w) < b.position(end - start)
            for (start, end), w in zip(spans, within, strict=True)
            if not (end - start).is_const
        ]
        return _largest(b, x, [*batch, *at], at, conjunction(masks) if masks else None)

    return rule


def _largest(
    b: Builder, x: Operand, at: Sequence[Index], plane: Sequence[Index], mask: Value | None
) -> tuple[Value, Value]:
    place = b.position(flatten(plane, contiguous_strides(x.type.shape[-len(plane) :])))
    if mask is None:
        value = b.math(x[at])
    else:
        value = b.math(x.where(mask, at))
        value = b.where(mask, value, b.const(lowest(value.dtype), value.dtype))
        place = b.where(mask, place, NOWHERE)
    best, where = b.reduce_all("argmax", value, place)
    return store(b, best), store(b, where, 1)


# -- nearest element ---------------------------------------------------------------------------------


def upsample_nearest(n: int, *, centered: bool = False) -> Rule:
    def rule(b: Builder, x: Operand, _sizes: Sequence[Dim], *scales: float | None) -> Value:
        batch, out = b.at[:-n], b.at[-n:]
        all_scales = [*scales, *[None] * (n - len(scales))]
        at = [
            _nearest(b, i, size, o, scale, centered)
            for i, size, o, scale in zip(out, x.type.shape[-n:], b.shape[-n:], all_scales, strict=True)
        ]
        return x[[*batch, *at]]

    return rule


def _nearest(b: Builder, i: Index, size: Dim, outs: Dim, scale: float | None, centered: bool) -> Index:
    """The source coordinate of output coordinate ``i``: floor(i * ratio) in float32, as eager computes it."""
    factor = _factor(size, outs, scale)
    if factor is not None and _divides(factor, outs, centered):
        return floordiv(i, factor)
    if scale is None and not (isinstance(size, int) and isinstance(outs, int)):
        not_lowerable(b, "resamples by a ratio of sizes known only at run time.")
    ratio = _ratio(size, outs, scale)
    place = b.cast(b.position(i), torch.float32)
    place = b.apply("floor", (place + 0.5 if centered else place) * ratio)
    last = b.number(as_dim(size - 1), torch.int64)
    return b.sure_index(b.apply("minimum", b.cast(place, torch.int64), last), size)


def _factor(size: Dim, outs: Dim, scale: float | None) -> int | None:
    """The integer factor by which sizes grow; None if the factor is not an integer."""
    quotient = sympy.cancel(sympy.sympify(outs) / size) if size != 0 else sympy.Integer(0)
    if not quotient.is_Integer or quotient < 1 or (scale is not None and scale != int(quotient)):
        return None
    return int(quotient)


def _divides(factor: int, outs: Dim, centered: bool) -> bool:
    """True if floor(i * (1 / factor)) in float32 is i // factor for every i. That holds for powers of two; for other
    factors every i is tried.
    """
    if factor & (factor - 1) == 0:
        return True
    if not isinstance(outs, int):
        return False
    i = torch.arange(outs)
    ratio = torch.tensor(outs // factor, dtype=torch.float32) / outs
    return bool(torch.equal(((i.float() + (0.5 if centered else 0.0)) * ratio).floor().long(), i // factor))


def _ratio(size: Dim, outs: Dim, scale: float | None) -> float:
    one = torch.tensor(1.0 / scale if scale is not None and scale > 0 else 0.0, dtype=torch.float32)
    if scale is not None and scale > 0:
        return float(one)
    return float(torch.tensor(float(size), dtype=torch.float32) / float(outs))


def upsample_nearest_backward(n: int) -> Rule:
    """For integer factors only: each input element sums the block that it was copied to."""

    def rule(b: Builder, grad: Operand, _outs: Sequence[Dim], _sizes: Sequence[Dim], *scales: float | None) -> Value:
        batch, here = b.at[:-n], b.at[-n:]
        all_scales = [*scales, *[None] * (n - len(scales))]
        outs = grad.type.shape[-n:]
        factors = [_factor(size, o, scale) for size, o, scale in zip(b.shape[-n:], outs, all_scales, strict=True)]
        integers = [f for f, o in zip(factors, outs, strict=True) if f is not None and _divides(f, o, False)]
        if len(integers) != n:
            not_lowerable(b, "resamples by a ratio that is not an integer.")
        within = b.fold_over(integers)
        at = [i * f + w for i, f, w in zip(here, integers, within, strict=True)]
        return store(b, b.reduce("sum", b.math(grad[[*batch, *at]])))

    return rule


def _each(name: str, make: Callable[[int], Rule], *dims: int) -> dict[Any, Rule]:
    return {getattr(aten, name.format(n)).default: make(n) for n in dims}


RULES: Mapping[Any, Rule] = {
    **_each("avg_pool{}d", avg_pool, 2, 3),
    **_each("avg_pool{}d_backward", avg_pool_backward, 2, 3),
    **_each("_adaptive_avg_pool{}d", adaptive_avg_pool, 2, 3),
    **_each("_adaptive_avg_pool{}d_backward", adaptive_avg_pool_backward, 2, 3),
    **_each("max_pool{}d_with_indices", max_pool, 2, 3),
    **_each("adaptive_max_pool{}d", adaptive_max_pool, 2, 3),
    **_each("upsample_nearest{}d", upsample_nearest, 1, 2, 3),
    **_each("_upsample_nearest_exact{}d", lambda n: upsample_nearest(n, centered=True), 1, 2, 3),
    **_each("upsample_nearest{}d_backward", upsample_nearest_backward, 1, 2, 3),
}
