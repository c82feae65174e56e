"""Losses whose PyTorch decompositions scatter where a comparison does, so that they fuse with what surrounds them."""
from __future__ import annotations

from typing import Any

import torch

from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("losses")

_MEAN = 1


@family(aten.nll_loss_backward.default, clauses=(
    "The gradient is -weight[target] * grad at the target class of each sample, 0 elsewhere and for ignored samples.",
    "With mean reduction grad is divided by total_weight.",
))
def nll_loss_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None,
                      reduction: int, ignore_index: int, total_weight: torch.Tensor) -> torch.Tensor:
    """The gradient of nll_loss with respect to its input."""
    return _backward(grad, x, target, weight, reduction, ignore_index, total_weight, 0 if x.dim() < 2 else 1)


@family(aten.nll_loss2d_backward.default, clauses=(
    "As nll_loss_backward, at every position of the image.",
))
def nll_loss2d_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None,
                        reduction: int, ignore_index: int, total_weight: torch.Tensor) -> torch.Tensor:
    """The gradient of nll_loss2d with respect to its input."""
    return _backward(grad, x, target, weight, reduction, ignore_index, total_weight, 1)


def _backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None,
              reduction: int, ignore_index: int, total_weight: torch.Tensor, channel: int) -> torch.Tensor:
    if reduction == _MEAN:
        grad = grad / total_weight
    if x.dim() == 1 and target.dim() > 0:                    # eager looks at the first target of a lone sample
        target = aten.select.int(target, 0, 0)
    target = aten.unsqueeze.default(target, channel)
    if x.dim() > grad.dim() > 0:
        grad = aten.unsqueeze.default(grad, channel)
    if weight is not None:
        grad = grad * aten.view.default(weight, _along(x, channel))
    classes = aten.view.default(aten.arange.default(x.shape[channel], device=x.device), _along(x, channel))
    here = aten.bitwise_and.Tensor(aten.eq.Tensor(classes, target), aten.ne.Scalar(target, ignore_index))
    zero = aten.full.default([], 0.0, dtype=x.dtype, device=x.device)
    return aten.where.self(here, aten.neg.default(grad).to(x.dtype), zero)


def _along(x: torch.Tensor, dim: int) -> list[Any]:
    return [x.shape[dim] if d == dim else 1 for d in range(x.dim())]


@family(aten.soft_margin_loss_backward.default, clauses=(
    "The gradient is -target * sigmoid(-target * x) * grad, over the number of elements with mean reduction.",
))
def soft_margin_loss_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor,
                              reduction: int) -> torch.Tensor:
    """The gradient of soft_margin_loss with respect to its input."""
    sign, value = accurate(target), accurate(x)
    slope = aten.neg.default(sign) * aten.sigmoid.default(aten.neg.default(sign * value)) * accurate(grad)
    return (slope / x.numel() if reduction == _MEAN else slope).to(x.dtype)
