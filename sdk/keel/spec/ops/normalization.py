"""Normalizations, forward and backward: statistics in two passes, float32 for 16-bit floats, rounded once.

PyTorch's own decompositions round statistics and their products to 16 bits on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.freedoms import may_round
from keel.spec.numerics import Numerics, SplitSums
from keel.spec.op import Family
from keel.spec.ops.statistics import IN_FLOAT32, SMALL, accurate
from keel.spec.rules import ShapeRule
from keel.spec.unspecified import infinite

aten = torch.ops.aten
family = Family("normalization")

Tensor = torch.Tensor
Mask = Sequence[bool]
_SCALES = Numerics(scaled_and_shifted=("input",))


def stats_dtype(x: Tensor, *parameters: Tensor | None, alike: bool = False) -> torch.dtype:
    """The dtype that ATen keeps statistics of ``x`` in: float32 for 16-bit floats, but on CPU (and everywhere if
    ``alike``) that of ``x`` unless the first parameter has another.
    """
    if x.dtype not in SMALL:
        return x.dtype
    first = next((p.dtype for p in parameters if p is not None), x.dtype)
    return x.dtype if first == x.dtype and (alike or x.device.type == "cpu") else torch.float32


def _moments(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """(biased variance, mean) over ``dims``, which are kept."""
    var, mean = aten.var_mean.correction(x, dims, correction=0, keepdim=True)
    return var, mean


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * accurate(weight)
    return x if bias is None else x + accurate(bias)


def _over(x: Tensor, dims: list[int]) -> Tensor:
    """The sum over ``dims``; ``x`` itself without any."""
    return aten.sum.dim_IntList(x, dims) if dims else x


# -- layer norm --------------------------------------------------------------------------------------


@family(
    aten.native_layer_norm.default,
    clauses=(
        "The result is (x - mean) * rstd * weight + bias, with mean and rstd = 1 / sqrt(variance + eps) of the last "
        "len(normalized_shape) dimensions and the biased variance.",
        "mean and rstd have size 1 in the dimensions normalized over.",
        Clause("A NaN or infinity among the elements normalized over makes all of them NaN.", About.NONFINITE),
        Clause(
            "For 16-bit x, mean and rstd are float32; on CPU only if weight, or else bias, is.",
            About.HALF,
            parameters=("weight",),
        ),
        IN_FLOAT32,
    ),
    numerics=_SCALES,
    unspecified=infinite(1),
)
def layer_norm(
    x: Tensor, normalized_shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer normalization, with the mean and the reciprocal standard deviation that its gradient needs."""
    inner = list(range(x.dim() - len(normalized_shape), x.dim()))
    value = accurate(x)
    var, mean = _moments(value, inner)
    rstd = aten.rsqrt.default(var + eps)
    out = _affine((value - mean) * rstd, weight, bias)
    saved_dtype = stats_dtype(x, weight, bias)
    return out.to(x.dtype), mean.to(saved_dtype), rstd.to(saved_dtype)


@family(
    aten.native_layer_norm_backward.default,
    clauses=("The gradients are those of layer_norm for the given mean and rstd; those not in output_mask are None.",),
    numerics=Numerics(
        split_sums=SplitSums("input", "mean", ShapeRule("normalized_shape", lambda args: args["normalized_shape"]))
    ),
)
def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[Any],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Mask,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients with respect to input, weight and bias."""
    split = x.dim() - len(normalized_shape)
    inner, outer = list(range(split, x.dim())), list(range(split))
    g, scale = accurate(grad), accurate(rstd)
    normal = (accurate(x) - accurate(mean)) * scale
    dx = dweight = dbias = None
    if output_mask[0]:
        up = g if weight is None else g * accurate(weight)
        dx = _input_gradient(up, normal, scale, inner, prod(normalized_shape)).to(x.dtype)
    if output_mask[1] and weight is not None:
        dweight = _over(g * normal, outer).to(weight.dtype)
    if output_mask[2] and bias is not None:
        dbias = _over(g, outer).to(bias.dtype)
    return dx, dweight, dbias


def _input_gradient(up: Tensor, normal: Tensor, rstd: Tensor, dims: list[int], count: Any) -> Tensor:
    """rstd * (up - average(up) - normal * average(up * normal)): the gradient through x's own statistics."""
    average = aten.sum.dim_IntList(up, dims, True) / count
    slope = aten.sum.dim_IntList(up * normal, dims, True) / count
    return (up - average - normal * slope) * rstd


# -- RMS norm ----------------------------------------------------------------------------------------


@family(
    "_fused_rms_norm.default",
    clauses=(
        "The result is x * rstd * weight, with rstd = 1 / sqrt(mean of squares + eps) of the last dimensions.",
        Clause(
            "eps defaults to the machine epsilon of the dtype that is computed in; rstd is float32 for 16-bit x.",
            About.HALF,
        ),
        Clause("A NaN makes its row NaN; an infinity becomes NaN, and the rest of its row 0.", About.NONFINITE),
        IN_FLOAT32,
    ),
)
def rms_norm(
    x: Tensor, normalized_shape: Sequence[Any], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """RMS normalization and the reciprocal root of the mean square."""
    inner = list(range(x.dim() - len(normalized_shape), x.dim()))
    value = accurate(x)
    mean = aten.sum.dim_IntList(value * value, inner, True) / prod(normalized_shape)
    rstd = aten.rsqrt.default(mean + (torch.finfo(value.dtype).eps if eps is None else eps))
    return _affine(value * rstd, weight, None).to(x.dtype), rstd


@family(
    "_fused_rms_norm_backward.default",
    clauses=("The gradients are those of rms_norm for the given rstd; those not in output_mask are None.",),
    cpu=None,
)
def rms_norm_backward(
    grad: Tensor, x: Tensor, normalized_shape: Sequence[Any], rstd: Tensor, weight: Tensor | None, output_mask: Mask
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients with respect to input and weight."""
    split = x.dim() - len(normalized_shape)
    inner, outer = list(range(split, x.dim())), list(range(split))
    g, scale = accurate(grad), accurate(rstd)
    normal = accurate(x) * scale
    dx = dweight = None
    if output_mask[0]:
        up = g if weight is None else g * accurate(weight)
        slope = aten.sum.dim_IntList(up * normal, inner, True) / prod(normalized_shape)
        dx = ((up - normal * slope) * scale).to(x.dtype)
    if output_mask[1] and weight is not None:
        dweight = _over(g * normal, outer).to(weight.dtype)
    return dx, dweight


# -- group norm --------------------------------------------------------------------------------------


@family(
    aten.native_group_norm.default,
    clauses=(
        "Channels are normalized in `group` equal groups per sample, with the biased variance; weight and bias are per "
        "channel.",
        Clause(
            "mean and rstd are [N, group]; for 16-bit x they are float32 if weight, or else bias, is.",
            About.HALF,
            parameters=("weight",),
        ),
        Clause("A NaN or infinity makes all elements of its group NaN.", About.NONFINITE),
        Clause(
            "16-bit floats are computed in float32 or better, and rounded once; only mean and rstd may be rounded to "
            "the dtype in which they are saved before they are used.",
            About.HALF | About.FLOAT32,
        ),
    ),
    numerics=_SCALES,
    unspecified=infinite(1),
    row_major=True,
)
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, N: Any, C: Any, HxW: Any, group: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Group normalization, with the mean and the reciprocal standard deviation that its gradient needs."""
    value = aten.reshape.default(accurate(x), [N, group, C // group, HxW])
    var, mean = _moments(value, [2, 3])
    rstd = aten.rsqrt.default(var + eps)
    saved_dtype = stats_dtype(x, weight, bias, alike=True)
    center, scale = may_round(mean, saved_dtype), may_round(rstd, saved_dtype)
    out = _affine((value - center) * scale, _in_groups(weight, C, group), _in_groups(bias, C, group))
    mean, rstd = (aten.view.default(s, [N, group]).to(saved_dtype) for s in (mean, rstd))
    return aten.view.default(out, list(x.shape)).to(x.dtype), mean, rstd


@family(
    aten.native_group_norm_backward.default,
    clauses=("The gradients are those of group_norm for the given mean and rstd; those not in output_mask are None.",),
    numerics=Numerics(split_sums=SplitSums("input", "mean", ShapeRule("[C]", lambda args: (args["C"],)))),
)
def group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: Any,
    C: Any,
    HxW: Any,
    group: Any,
    output_mask: Mask,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients with respect to input, weight and bias."""
    shape = [N, group, C // group, HxW]
    g, value = (aten.reshape.default(accurate(t), shape) for t in (grad, x))
    center, scale = (aten.view.default(accurate(t), [N, group, 1, 1]) for t in (mean, rstd))
    normal = (value - center) * scale
    dx = dweight = dbias = None
    if output_mask[0]:
        up = _affine(g, _in_groups(weight, C, group), None)
        inner = _input_gradient(up, normal, scale, [2, 3], C // group * HxW)
        dx = aten.view.default(inner, list(x.shape)).to(x.dtype)
    grad_dtype = x.dtype if weight is None else weight.dtype
    if output_mask[1]:
        dweight = aten.view.default(aten.sum.dim_IntList(g * normal, [0, 3]), [C]).to(grad_dtype)
    if output_mask[2]:
        dbias = aten.view.default(aten.sum.dim_IntList(g, [0, 3]), [C]).to(grad_dtype)
    return dx, dweight, dbias


def _in_groups(parameter: Tensor | None, C: Any, group: Any) -> Tensor | None:
    return None if parameter is None else aten.view.default(parameter, [1, group, C // group, 1])
