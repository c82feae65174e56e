"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from keel_pjrt.sites import Lowering, Site, flushed, in_float32, is_float


def _spread(values: Any, n: int) -> list[int]:
    """One number for each of ``n`` dimensions."""
    each = [values] if isinstance(values, int) else list(values)
    return each * n if len(each) == 1 else each


def _convolved(
    x: Array,
    weight: Array,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Array:
    n = x.ndim - 2
    stride, padding, dilation, more = (_spread(each, n) for each in (stride, padding, dilation, output_padding))
    if not transposed:
        pads = [(p, p) for p in padding]
        return lax.conv_general_dilated(x, weight, stride, pads, rhs_dilation=dilation, feature_group_count=groups)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    pads = [(r - p, r - p + m) for r, p, m in zip(reach, padding, more, strict=True)]
    parts = weight.reshape(groups, -1, *weight.shape[1:])  # groups, inputs, outputs, ...
    kernel = jnp.swapaxes(parts, 1, 2).reshape(-1, parts.shape[1], *weight.shape[2:])
    kernel = jnp.flip(kernel, tuple(range(2, kernel.ndim)))
    return lax.conv_general_dilated(
        x, kernel, [1] * n, pads, lhs_dilation=stride, rhs_dilation=dilation, feature_group_count=groups
    )


WINDOW = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


def _convolution(site: Site, input: Array, weight: Array, bias: Any = None, **window: Any) -> Array:
    if input.size and weight.size:
        result = _convolved(input, weight, **{name: window[name] for name in WINDOW})
    else:
        result = jnp.zeros(site.shape, input.dtype)
    return result if bias is None else result + bias.reshape(-1, *[1] * (input.ndim - 2))


def _convolution_backward(
    site: Site, grad_output: Array, input: Array, weight: Array, output_mask: Sequence[bool], **window: Any
) -> tuple[Any, ...]:
    """By JAX's own derivative: a convolution is linear in each operand."""
    forward = partial(_convolved, **{name: window[name] for name in WINDOW})
    bias = grad_output.sum((0, *range(2, grad_output.ndim)))
    if not grad_output.size or not input.size:
        gradients: tuple[Array, ...] = (jnp.zeros_like(input), jnp.zeros_like(weight))
    else:
        gradients = jax.vjp(forward, input, weight)[1](grad_output)
    return tuple(each if is_needed else None for each, is_needed in zip((*gradients, bias), output_mask, strict=True))


def _window(x: Array, n: int, size: Any, stride: Any, padding: Any) -> tuple[list[int], list[int], list[int]]:
    size = _spread(size, n)
    return size, _spread(stride, n) if stride else size, _spread(padding, n)


def _ends(
    x: Array, shape: Sequence[int], size: Sequence[int], stride: Sequence[int], before: Sequence[int]
) -> list[int]:
    """How much is added behind each dimension, so that there are as many windows as the result has elements."""
    n = len(size)
    rows = zip(x.shape[-n:], shape[-n:], size, stride, before, strict=True)
    return [(many - 1) * step + k - have - p for have, many, k, step, p in rows]


def _sums(x: Array, size: Sequence[int], stride: Sequence[int], before: Sequence[int], after: Sequence[int]) -> Array:
    lead = [1] * (x.ndim - len(size))
    pads = [(0, 0, 0)] * len(lead) + [(b, a, 0) for b, a in zip(before, after, strict=True)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), pads)
    start = np.zeros((), x.dtype)[()]
    result: Array = lax.reduce_window(padded, start, lax.add, (*lead, *size), (*lead, *stride), "VALID")
    return result


def _average(n: int) -> Lowering:
    def lowering(
        site: Site,
        self: Array,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Array:
        size, steps, before = _window(self, n, kernel_size, stride, padding)
        after = _ends(self, site.shape, size, steps, before)
        total = _sums(self, size, steps, before, after)
        count = _counts(self.shape, site.shape, size, steps, before, count_include_pad)
        by = np.asarray(divisor_override or count, self.dtype)
        return total / by if is_float(self) else lax.div(*jnp.broadcast_arrays(total, jnp.asarray(by)))

    return in_float32(lowering)


def _counts(
    have: Sequence[int],
    many: Sequence[int],
    size: Sequence[int],
    steps: Sequence[int],
    before: Sequence[int],
    pad: bool,
) -> Any:
    """The divisor of each window: its elements inside the operand, or inside the operand and its padding."""
    result: Any = np.ones((), np.int64)
    n = len(size)
    for length, count, k, step, p in zip(have[-n:], many[-n:], size, steps, before, strict=True):
        start = np.arange(count) * step - p
        low, high = (-p, length + p) if pad else (0, length)
        result = result[..., None] * (np.minimum(start + k, high) - np.maximum(start, low))
    return result


def _average_backward(n: int) -> Lowering:
    forward = _average(n)

    def lowering(site: Site, grad_output: Array, self: Array, **window: Any) -> Array:
        shape = site.types["grad_output"].shape
        like = _Pooled(shape)
        gradient: Array = jax.vjp(lambda x: forward(like, self=x, **window), self)[1](grad_output)[0]
        return gradient

    return in_float32(lowering)


class _Pooled:
    """The site of the forward call that a backward call differentiates, as far as pooling asks."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)


def _greatest(n: int) -> Lowering:
    def lowering(
        site: Site,
        self: Array,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Array, Array]:
        """A pass over the places in a window. The first of equal elements is taken, and NaN before all others."""
        size, steps, before = _window(self, n, kernel_size, stride, padding)
        spacing = _spread(dilation, n)
        reach = [(k - 1) * d + 1 for k, d in zip(size, spacing, strict=True)]
        after = [max(a, 0) for a in _ends(self, site.shape, reach, steps, before)]
        lead = self.ndim - n
        self = flushed(self)
        plane = self.shape[lead:]
        lowest = -jnp.inf if is_float(self) else np.iinfo(self.dtype).min
        pads = [(0, 0, 0)] * lead + [(b, a, 0) for b, a in zip(before, after, strict=True)]
        padded = lax.pad(self, jnp.asarray(lowest, self.dtype), pads)
        number = np.arange(prod(plane)).reshape(plane)
        places = np.pad(number, [pad[:2] for pad in pads[lead:]], constant_values=-1)
        best: Any = None
        for offsets in product(*[range(0, k * d, d) for k, d in zip(size, spacing, strict=True)]):
            window = tuple(
                slice(o, o + (m - 1) * s + 1, s) for o, m, s in zip(offsets, site.shape[lead:], steps, strict=True)
            )
            value, at = padded[(..., *window)], jnp.asarray(places[window])
            takes = at >= 0
            if best is None:
                best, place = value, jnp.broadcast_to(at, value.shape)
                continue
            takes = takes & ((place < 0) | (value > best) | ((value != value) & (best == best)))
            best, place = jnp.where(takes, value, best), jnp.where(takes, at, place)
        return best, place

    return lowering


TABLE: Mapping[str, Lowering] = {
    "convolution": in_float32(_convolution),
    "convolution_backward": in_float32(_convolution_backward),
    **{f"avg_pool{n}d": _average(n) for n in (2, 3)},
    **{f"avg_pool{n}d_backward": _average_backward(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices": _greatest(n) for n in (2, 3)},
}
