"""The parts of batch normalization that devices share when they synchronize statistics."""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.numerics import Numerics
from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("batch norm")
Tensor = torch.Tensor

_CHANNELS = Clause("Channels are dimension 1; statistics of 16-bit floats are float32.", About.HALF)


def _other(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _spread(values: Tensor, x: Tensor) -> Tensor:
    """One value per channel, ready to be broadcast with ``x``, in the accurate dtype."""
    return accurate(aten.view.default(values, [1, x.shape[1], *[1] * (x.dim() - 2)]))


@family(
    "batch_norm_stats",
    clauses=(_CHANNELS, "The second result is 1 / sqrt(variance + eps), of the biased variance."),
    tags=frozenset({"reduction"}),
    cpu=None,
)
def batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The mean and the reciprocal deviation of each channel."""
    var, mean = aten.var_mean.correction(accurate(x), _other(x), correction=0)
    return mean, aten.rsqrt.default(var + eps)


@family(
    "batch_norm_elemt",
    clauses=(_CHANNELS, "The result is (x - mean) * invstd * weight + bias, rounded once."),
    numerics=Numerics(scaled_and_shifted=("input", "mean")),
    cpu=None,
)
def batch_norm_apply(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """Batch normalization by given statistics."""
    out = (accurate(x) - _spread(mean, x)) * _spread(invstd, x)
    out = out if weight is None else out * _spread(weight, x)
    return (out if bias is None else out + _spread(bias, x)).to(x.dtype)


@family(
    "batch_norm_backward_reduce",
    clauses=(
        _CHANNELS,
        "The results are the sums of the gradient and of gradient * (x - mean), and the gradients of weight and "
        "bias; those not asked for are None.",
    ),
    tags=frozenset({"reduction"}),
    cpu=None,
)
def batch_norm_backward_sums(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Any, ...]:
    """What devices add up before the gradient of the input can be had."""
    g = accurate(grad)
    shift = aten.sum.dim_IntList(g, _other(x))
    slope = aten.sum.dim_IntList(g * (accurate(x) - _spread(mean, x)), _other(x))
    grad_dtype = x.dtype if weight is None else weight.dtype
    return (
        shift if input_g else None,
        slope if input_g else None,
        (slope * accurate(invstd)).to(grad_dtype) if weight_g else None,
        shift.to(grad_dtype) if bias_g else None,
    )


@family(
    "batch_norm_backward_elemt",
    clauses=(
        _CHANNELS,
        "With n the sum of count, the result is (grad - sum_dy / n - (x - mean) * invstd^2 * sum_dy_xmu / n) * "
        "invstd * weight, rounded once.",
    ),
    cpu=None,
)
def batch_norm_backward_apply(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """The gradient of the input, by sums over all devices."""
    total = aten.sum.default(count).to(accurate(x).dtype)
    rstd = _spread(invstd, x)
    slope = _spread(sum_dy_xmu, x) / total * rstd * rstd
    scale = rstd if weight is None else rstd * _spread(weight, x)
    centered = accurate(x) - _spread(mean, x)
    return ((accurate(grad) - _spread(sum_dy, x) / total - centered * slope) * scale).to(x.dtype)
