"""Batch normalization in ATen's many overloads, which differ in what they return beside the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.freedoms import may_compute, may_round
from keel.spec.numerics import Numerics
from keel.spec.op import Family
from keel.spec.ops.normalization import stats_dtype
from keel.spec.ops.statistics import accurate
from keel.spec.unspecified import infinite

aten = torch.ops.aten
family = Family("batch norm")

Tensor = torch.Tensor
_SCALES, _BY_RUNNING = (Numerics(scaled_and_shifted=names) for names in (("input",), ("input", "running_mean")))
_CLAUSES = (
    "In training the statistics are those of the batch, per channel (dimension 1): the mean and the biased variance.",
    "The new running statistics are (1 - momentum) * old + momentum * the batch's, with the unbiased variance.",
    "Otherwise the statistics are the running ones, which stay.",
    Clause(
        "For 16-bit x, saved statistics are float32; on CPU only if the first of weight, bias, running statistics is.",
        About.HALF,
    ),
    Clause(
        "16-bit floats are computed in float32 or better, and rounded once; only statistics, and what is made "
        "of them per channel, may be rounded to the dtype of saved or running statistics before it is used.",
        About.HALF | About.FLOAT32,
    ),
)


def _other(x: Tensor) -> list[int]:
    """Every dimension but that of the channels."""
    return [0, *range(2, x.dim())]


def _per_channel(parameter: Tensor, x: Tensor) -> Tensor:
    """A vector over channels, ready to be broadcast with ``x``, in the accurate dtype."""
    return accurate(aten.view.default(parameter, [1, x.shape[1], *[1] * (x.dim() - 2)]))


def _applied(
    x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    out = (accurate(x) - mean) * rstd
    out = out if weight is None else out * _per_channel(weight, x)
    out = out if bias is None else out + _per_channel(bias, x)

    def by_scale_and_shift() -> Tensor:
        scale = may_round(rstd if weight is None else rstd * _per_channel(weight, x), dtype)
        shift = aten.neg.default(mean * scale)
        shift = may_round(shift if bias is None else shift + _per_channel(bias, x), dtype)
        return accurate(x) * scale + shift

    return may_compute(out, by_scale_and_shift).to(x.dtype)


def _trained(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """(result, saved mean, saved reciprocal deviation, new running mean, new running variance)"""
    var, mean = aten.var_mean.correction(accurate(x), _other(x), correction=0, keepdim=True)
    saved_dtype = stats_dtype(x, weight, bias, running_mean, running_var)
    rstd = aten.rsqrt.default(may_round(var + eps, saved_dtype))
    saved = [aten.view.default(s, [x.shape[1]]) for s in (mean, rstd, var)]
    count = x.numel() // x.shape[1]
    unbiased = saved[2] * count / (count - 1)
    mean, rstd = may_round(mean, saved_dtype), may_round(rstd, saved_dtype)
    moved = (_moved(old, new, momentum) for old, new in ((running_mean, saved[0]), (running_var, unbiased)))
    return (
        _applied(x, mean, rstd, weight, bias, saved_dtype),
        saved[0].to(saved_dtype),
        saved[1].to(saved_dtype),
        *moved,
    )


def _moved(old: Tensor | None, new: Tensor, momentum: float) -> Tensor | None:
    if old is None:
        return None
    remaining, more = (may_round(part, old.dtype) for part in (accurate(old) * (1 - momentum), new * momentum))
    return (remaining + more).to(old.dtype)


def _inferred(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(result, saved mean, saved reciprocal deviation); on CPU nothing is saved."""
    saved_dtype = stats_dtype(x, weight, bias, running_mean)
    rstd = aten.rsqrt.default(may_round(accurate(running_var) + eps, saved_dtype))
    deviation = may_round(_per_channel(rstd, x), saved_dtype)
    out = _applied(x, _per_channel(running_mean, x), deviation, weight, bias, saved_dtype)
    if x.device.type != "cpu":
        return out, accurate(running_mean), rstd
    nothing = aten.full.default([0], 0.0, dtype=saved_dtype, device=x.device)
    return out, nothing, nothing


@family(
    aten._native_batch_norm_legit_functional.default, clauses=_CLAUSES, numerics=_BY_RUNNING, unspecified=infinite(1, 3)
)
def batch_norm_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The result, saved mean and reciprocal deviation, new running mean and variance."""
    if training:
        return _trained(x, weight, bias, running_mean, running_var, momentum, eps)
    return (
        *_inferred(x, weight, bias, running_mean, running_var, eps),
        aten.clone.default(running_mean),
        aten.clone.default(running_var),
    )


@family(aten._native_batch_norm_legit.no_stats, clauses=_CLAUSES, numerics=_SCALES, unspecified=infinite(1))
def batch_norm_no_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """The result, saved mean and reciprocal deviation; without running statistics."""
    return _trained(x, weight, bias, None, None, momentum, eps)[:3]


@family(aten._native_batch_norm_legit_no_training.default, clauses=_CLAUSES, numerics=_BY_RUNNING)
def batch_norm_no_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The result by the running statistics."""
    return _inferred(x, weight, bias, running_mean, running_var, eps)


def _reserve(x: Tensor) -> Tensor:
    """What cuDNN would keep for the backward pass: nothing here."""
    return aten.full.default([0], 0, dtype=torch.uint8, device=x.device)


@family(aten._batch_norm_with_update_functional.default, clauses=_CLAUSES, numerics=_SCALES, unspecified=infinite(1, 4))
def batch_norm_with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The result, saved statistics, an empty reserve, new running mean and variance."""
    out, mean, rstd, *moved = _trained(x, weight, bias, running_mean, running_var, momentum, eps)
    return (out, mean, rstd, _reserve(x), *moved)


@family(aten._batch_norm_no_update.default, clauses=_CLAUSES, numerics=_BY_RUNNING)
def batch_norm_no_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The result by the running statistics, saved statistics, an empty reserve."""
    if running_mean is None or running_var is None:
        return NotImplemented
    return (*_inferred(x, weight, bias, running_mean, running_var, eps), _reserve(x))


@family(
    aten.native_batch_norm_backward.default,
    clauses=(
        "The gradients are those of the forward for the statistics that it used; those not in output_mask are None.",
    ),
)
def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:
    """Gradients with respect to input, weight and bias."""
    if train:
        center, deviation = save_mean, save_invstd
    else:
        center = running_mean
        deviation = None if running_var is None else aten.rsqrt.default(accurate(running_var) + eps)
    if center is None or deviation is None:
        return NotImplemented
    g, rstd = accurate(grad), _per_channel(deviation, x)
    normal = (accurate(x) - _per_channel(center, x)) * rstd
    shift = aten.sum.dim_IntList(g, _other(x), True)
    slope = aten.sum.dim_IntList(g * normal, _other(x), True)
    dx = dweight = dbias = None
    if output_mask[0]:
        count = x.numel() // x.shape[1]
        scale = rstd if weight is None else rstd * _per_channel(weight, x)
        dx = ((g - shift / count - normal * (slope / count) if train else g) * scale).to(x.dtype)
    grad_dtype = x.dtype if weight is None else weight.dtype
    if output_mask[1]:
        dweight = aten.view.default(slope, [x.shape[1]]).to(grad_dtype)
    if output_mask[2]:
        dbias = aten.view.default(shift, [x.shape[1]]).to(grad_dtype)
    return dx, dweight, dbias


@family(
    aten.batch_norm_backward.default,
    clauses=("As native_batch_norm_backward; the reserve is cuDNN's own and not read.",),
)
def batch_norm_backward_with_reserve(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Tensor,
) -> tuple[Any, ...]:
    """Gradients with respect to input, weight and bias."""
    return batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )
