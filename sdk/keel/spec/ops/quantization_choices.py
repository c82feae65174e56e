"""Quantization with scales that are learned, chosen from the data, or given per token and per group."""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Family

aten = torch.ops.aten
family = Family("quantization", "quantized")
Tensor = torch.Tensor

_TAGS = frozenset({"pointwise"})
_STEPS = (
    Clause(
        "Elements are round(x * (1 / scale) + zero_point), ties to even, brought into [quant_min, quant_max].",
        About.HALFWAY,
    ),
    Clause("NaN is not specified.", About.NONFINITE | About.UNSPECIFIED),
)
_BACK = ("Elements are (x - zero_point) * scale, converted last.",)


# -- per token and per group ------------------------------------------------------------------------------------------


def _quantized(x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
    steps = aten.round.default(x * aten.reciprocal.default(scale) + zero_point)
    return aten.clamp.default(steps, low, high).to(dtype)


@family(
    "quantized_decomposed::quantize_per_token",
    clauses=(*_STEPS, "Each row has its own scale."),
    tags=_TAGS,
    broadcasts=False,
)
def quantize_per_token(
    x: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """Numbers as small integers, by a scale and zero point per row, which broadcast."""
    return _quantized(x, scales, zero_points, quant_min, quant_max, dtype)


@family(
    "quantized_decomposed::dequantize_per_token",
    clauses=(*_BACK, "Each row has its own scale."),
    tags=_TAGS,
    broadcasts=False,
)
def dequantize_per_token(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Small integers as numbers, by a scale and zero point per row, which broadcast."""
    return ((x - zero_points) * scales).to(output_dtype)


def _groups(x: Tensor, scales: Tensor, size: int) -> tuple[Any, ...]:
    """Rows of one group each, and the scales' column; one group where the row is shorter."""
    size = x.shape[-1] if size > x.shape[-1] and scales.shape[-1] == 1 else size
    return aten.reshape.default(x, [x.numel() // size, size]), aten.reshape.default(scales, [-1, 1])


@family(
    "quantized_decomposed::quantize_per_channel_group",
    clauses=(*_STEPS, "Each group_size elements of a row have their own scale; where a row is shorter, all of it."),
    tags=_TAGS,
    broadcasts=False,
)
def quantize_per_group(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Tensor:
    """Numbers as small integers, by a scale and zero point per group of a matrix's row."""
    rows, column = _groups(x, scales, group_size)
    out = _quantized(rows, column, aten.reshape.default(zero_points, [-1, 1]), quant_min, quant_max, dtype)
    return aten.view.default(out, list(x.shape))


@family(
    "quantized_decomposed::dequantize_per_channel_group",
    clauses=(
        *_BACK,
        "Each group_size elements of a row have their own scale; where a row is shorter, all of it.",
        "Without zero_points they are 0.",
    ),
    tags=_TAGS,
    broadcasts=False,
)
def dequantize_per_group(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Small integers as numbers, by a scale and zero point per group of a matrix's row."""
    rows, column = _groups(x, scales, group_size)
    if zero_points is not None:
        rows = rows - aten.reshape.default(zero_points, [-1, 1])
    return aten.reshape.default(rows * column, list(x.shape)).to(output_dtype)


# -- scales chosen from the data --------------------------------------------------------------------------------------


def _span(x: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and largest element, or 0, so that 0 is one of the steps."""
    low, high = aten.aminmax.default(aten.reshape.default(x, [x.numel()]), dim=0, keepdim=True)
    return aten.clamp_max.default(low, 0), aten.clamp_min.default(high, 0)


def _at_least(scale: Tensor, eps: float) -> Tensor:
    """In float32, as eps is."""
    return aten.clamp_min.default(scale.to(torch.float32), eps)


_CHOSEN = (
    "The scale is float64 and the zero point int64, with one element each.",
    "0 is one of the steps.",
    "The scale is at least eps.",
)


@family(
    "quantized_decomposed::choose_qparams.tensor",
    clauses=(
        *_CHOSEN,
        "The scale is (max - min) / (quant_max - quant_min).",
        "The zero point is quant_min - round(min / scale), within [quant_min, quant_max].",
    ),
    tags=frozenset({"reduction"}),
)
def choose_scale(x: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The scale and zero point that just cover the elements."""
    low, high = _span(x)
    scale = _at_least((high - low) / float(quant_max - quant_min), eps)
    point = aten.clamp.default(quant_min - aten.round.default(low / scale), quant_min, quant_max)
    return scale.to(torch.float64), point.to(torch.int64)


@family(
    "quantized_decomposed::choose_qparams_symmetric.tensor",
    clauses=(
        *_CHOSEN,
        "The scale is the largest absolute value divided by half of (quant_max - quant_min).",
        "The zero point is 0, for uint8 128.",
    ),
    tags=frozenset({"reduction"}),
)
def choose_scale_symmetric(
    x: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The scale that just covers the elements on both sides of 0."""
    low, high = _span(x)
    largest = aten.maximum.default(aten.neg.default(low), high)
    scale = _at_least(largest / (float(quant_max - quant_min) / 2), eps)
    point = 128 if dtype in (torch.uint8, torch.quint8) else 0
    return scale.to(torch.float64), aten.full.default([1], point, dtype=torch.int64, device=x.device)


@family(
    "quantized_decomposed::choose_qparams_per_token_asymmetric",
    clauses=(
        Clause("Each row has a scale (float64) and a zero point (int64), for integers from -128 to 127.", About.ZERO),
        "The end of the range with the smaller rounding error fixes the zero point.",
    ),
    tags=frozenset({"reduction"}),
)
def choose_scale_per_token(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The scales and zero points that just cover each row."""
    low = aten.clamp_max.default(aten.amin.default(x, [-1], True), 0)
    high = aten.clamp_min.default(aten.amax.default(x, [-1], True), 0)
    scale = aten.clamp_min.default((high - low) / 255.0, torch.finfo(torch.float32).eps)
    below, above = low / scale, high / scale
    point = aten.where.self(aten.gt.Scalar(-128 + below + (127 + above), 0), -128 - below, 127 - above)
    point = aten.round.default(aten.clamp.default(point, -128, 127))
    return scale.to(torch.float64), point.to(torch.int64)


# -- learned scales ---------------------------------------------------------------------------------------------------

_LEARNED = (
    Clause("The zero point is rounded, ties to even, and brought into [quant_min, quant_max].", About.HALFWAY),
    "The result is quantized as quantize_per_tensor does, and dequantized.",
)
_SLOPES = (
    "The gradient of x is grad where the rounded number is within bounds, else 0.",
    "The gradient of the scale is the sum of grad times (dequantized - x) / scale within bounds, and times the "
    "bound minus the zero point beyond; that of the zero point the sum of -scale * grad beyond; both times "
    "grad_factor.",
)


def _along(values: Tensor, x: Tensor, axis: int | None) -> Tensor:
    """One value, or one per index of ``axis``, to broadcast over ``x``."""
    return aten.view.default(
        values, [] if axis is None else [x.shape[d] if d == axis % x.dim() else 1 for d in range(x.dim())]
    )


def _learned(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None, low: int, high: int) -> Tensor:
    step, point = _along(scale, x, axis), aten.clamp.default(aten.round.default(_along(zero_point, x, axis)), low, high)
    steps = aten.round.default(x * aten.reciprocal.default(step)) + point
    return ((aten.clamp.default(steps, low, high) - point) * step).to(x.dtype)


def _learned_backward(
    grad: Tensor, x: Tensor, scale: Tensor, point: Tensor, axis: int | None, low: int, high: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``point`` is rounded already."""
    step, point = _along(scale, x, axis), _along(point, x, axis)
    steps = aten.round.default(x * aten.reciprocal.default(step)) + point
    held = aten.clamp.default(steps, low, high)
    within = aten.eq.Tensor(held, steps)
    slope = aten.where.self(within, ((held - point) * step - x) / step, held - point)
    shift = aten.where.ScalarSelf(within, 0.0, aten.neg.default(step).expand(x.shape))
    over = [d for d in range(x.dim()) if axis is None or d != axis % x.dim()]

    def summed(values: Tensor) -> Tensor:
        total = aten.sum.dim_IntList(values * grad * factor, over) if over else values * grad * factor
        return aten.view.default(total, list(scale.shape))

    return aten.where.ScalarOther(within, grad, 0.0), summed(slope), summed(shift)


@family("_fake_quantize_learnable_per_tensor_affine", clauses=_LEARNED, tags=_TAGS)
def learned_fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """Numbers rounded to what small integers can hold, by a scale and zero point that are learned."""
    return _learned(x, scale, zero_point, None, quant_min, quant_max)


@family("_fake_quantize_learnable_per_tensor_affine_backward", clauses=_SLOPES, tags=frozenset({"reduction"}))
def learned_fake_quantize_backward(
    grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, the scale and the zero point; here ties of the zero point are rounded up."""
    point = aten.clamp.default(aten.trunc.default(zero_point + 0.5), quant_min, quant_max)
    return _learned_backward(grad, x, scale, point, None, quant_min, quant_max, grad_factor)


@family(
    "_fake_quantize_learnable_per_channel_affine",
    clauses=(*_LEARNED, "Each index of axis has its own scale."),
    tags=_TAGS,
    broadcasts=False,
)
def learned_fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """As learned_fake_quantize, with a scale and zero point per index of a dimension."""
    return _learned(x, scale, zero_point, axis, quant_min, quant_max)


@family(
    "_fake_quantize_learnable_per_channel_affine_backward",
    clauses=(*_SLOPES, "Each index of axis has its own scale."),
    tags=frozenset({"reduction"}),
)
def learned_fake_quantize_per_channel_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, the scales and the zero points."""
    point = aten.clamp.default(aten.round.default(zero_point), quant_min, quant_max)
    return _learned_backward(grad, x, scale, point, axis, quant_min, quant_max, grad_factor)
