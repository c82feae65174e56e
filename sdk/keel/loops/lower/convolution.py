"""Convolution and its gradients, for targets that have no library for them.

All of them sum products along dimensions of the image, the window and the channels of a group. A window's element ``k``
of output ``o`` is over the image's ``o * stride - padding + k * dilation``: this equation is read in three directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch

from keel.loops.builder import Builder, Operand, Rule, Value
from keel.loops.index import Index, floordiv, mod, quotient
from keel.types import Call, Dim, as_dim

from .rule_arguments import not_lowerable, store
from .windows import conjunction, inside, spread

aten = torch.ops.aten
RESULTS = 3
"""The gradients of a convolution: of the image, of the weight, and of the bias."""
MASK = 10
"""The number of the argument of ``convolution_backward`` that says which gradients are computed."""


@dataclass(frozen=True)
class Windows:
    """How windows lie over images of ``n`` dimensions: stride, padding and dilation in each, and the number of groups
    of channels.
    """

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def under(self, outputs: Sequence[Index], elements: Sequence[Index]) -> list[Index]:
        """The coordinates in the image under elements of the windows of outputs."""
        rows = zip(outputs, elements, self.stride, self.padding, self.dilation, strict=True)
        return [o * s - p + k * d for o, k, s, p, d in rows]


def _read(b: Builder, image: Operand, batch: Sequence[Index], at: Sequence[Index], windows: Windows) -> Value:
    """The image's element at coordinates under windows, which are inside it unless there is padding."""
    masks = [inside(b, i, size) for i, size, p in zip(at, image.type.shape[2:], windows.padding, strict=True) if p != 0]
    where = [*batch, *at]
    return b.math(image.where(conjunction(masks), where) if masks else image[where])


def _group(b: Builder, channel: Index, channels: Dim, windows: Windows) -> tuple[Index, Index, Dim]:
    """The group of a channel, its place in the group, and the number of channels of a group."""
    if windows.groups == 1:
        return Index(), channel, channels
    size = quotient(channels, windows.groups)
    if size is None:
        not_lowerable(b, f"has {channels} channels in {windows.groups} groups.")
    return floordiv(channel, size), mod(channel, size), size


def gathered(b: Builder, image: Operand, weight: Operand, windows: Windows) -> Value:
    """The sum, for each output, of the image's elements under its window times the weight's."""
    batch, channel, *outputs = b.at
    group, _, _ = _group(b, channel, weight.type.shape[0], windows)
    c, *elements = b.fold_over(weight.type.shape[1:])
    at = windows.under(outputs, elements)
    element = _read(b, image, [batch, group * weight.type.shape[1] + c], at, windows)
    return b.reduce("sum", element * b.math(weight[[channel, c, *elements]]))


def spread_out(b: Builder, image: Operand, weight: Operand, windows: Windows) -> Value:
    """The sum, for each element of the result, of the elements whose window is over it, times the weight's."""
    batch, channel, *here = b.at
    group, within, _ = _group(b, channel, as_dim(weight.type.shape[1] * windows.groups), windows)
    _, _, size = _group(b, Index(), weight.type.shape[0], windows)
    rows = [*zip(weight.type.shape[2:], windows.stride, windows.dilation, strict=True)]
    c, *steps = b.fold_over([size, *(-(-k // s) if _by_output(k, s, d) else k for k, s, d in rows)])
    outputs, elements, masks, weighed = [], [], [], []
    for i, t, p, n, (k, s, d) in zip(here, steps, windows.padding, image.type.shape[2:], rows, strict=True):
        if _by_output(k, s, d):
            output = floordiv(i + p, s) - t
            element = i + p - output * s
            weighed += [] if k % s == 0 else [b.position(element) < k]
        else:
            output, element = floordiv(i + p - t * d, s), t
            masks += [] if s == 1 else [b.position(i + p - t * d - output * s).equals(0)]
        outputs.append(output)
        elements.append(element)
        masks.append(inside(b, output, n))
    channels = group * size + c
    element_of_image = b.math(image.where(conjunction([*masks, *weighed]), [batch, channels, *outputs]))
    places = [channels, within, *elements]
    return b.reduce(
        "sum", element_of_image * b.math(weight.where(conjunction(weighed), places) if weighed else weight[places])
    )


def _by_output(kernel: Dim, stride: int, dilation: int) -> TypeGuard[int]:
    """True if the outputs over an element are counted, of which there are fewer than elements of the window."""
    return isinstance(kernel, int) and dilation == 1


def convolution(
    b: Builder,
    image: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    windows = _windows(image, stride, padding, dilation, groups)
    total = (spread_out if transposed else gathered)(b, image, weight, windows)
    return store(b, total if bias is None else total + b.cast(b.math(bias[[b.at[1]]]), total.dtype))


def _windows(
    image: Operand, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Windows:
    n = image.type.rank - 2
    return Windows(spread(stride, n), spread(padding, n), spread(dilation, n), groups)


def convolution_backward(
    b: Builder,
    grad: Operand,
    image: Operand,
    weight: Operand,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Value:
    """One of the gradients. Calls for several are taken apart first (``one_gradient_each``)."""
    if sum(mask) != 1:
        not_lowerable(b, "has several results, which have loops of their own.")
    windows = _windows(image, stride, padding, dilation, groups)
    which = list(mask).index(True)
    if which == 0:
        value = (gathered if transposed else spread_out)(b, grad, weight, windows)
    elif which == 1:
        value = _of_weight(b, *((image, grad) if transposed else (grad, image)), windows)
    else:
        n, *at = b.fold_over([grad.type.shape[0], *grad.type.shape[2:]])
        value = b.reduce("sum", b.math(grad[[n, b.at[0], *at]]))
    return store(b, value, which)


def _of_weight(b: Builder, outputs: Operand, image: Operand, windows: Windows) -> Value:
    """The sum, for each element of the weight, of what it is multiplied with times the gradient of the product's
    output.
    """
    channel, c, *elements = b.at
    group, _, _ = _group(b, channel, b.shape[0], windows)
    n, *at = b.fold_over([outputs.type.shape[0], *outputs.type.shape[2:]])
    under = windows.under(at, elements)
    element = _read(b, image, [n, group * b.shape[1] + c], under, windows)
    return b.reduce("sum", b.math(outputs[[n, channel, *at]]) * element)


def one_gradient_each(call: Call) -> tuple[Call, ...]:
    """A call of ``convolution_backward`` as calls for one of the gradients each, in their order."""
    mask = call.args[MASK]
    gradients = [which for which in range(RESULTS) if mask[which]]

    def alone(values: Sequence[Any], which: int, other: Any) -> tuple[Any, ...]:
        return tuple(v if n == which else other for n, v in enumerate(values))

    return tuple(
        replace(call, args=(*call.args[:MASK], alone(mask, n, False)), out=alone(call.out, n, None)) for n in gradients
    )


RULES: Mapping[Any, Rule] = {
    aten.convolution.default: convolution,
    aten.convolution_overrideable.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.convolution_backward_overrideable.default: convolution_backward,
}
CALLS_BY_RESULT: Mapping[Any, Callable[[Call], tuple[Call, ...]]] = {
    aten.convolution_backward.default: one_gradient_each,
    aten.convolution_backward_overrideable.default: one_gradient_each,
}
"""By operator with results of different shapes, which have loops of their own: the calls that give one result each."""
