"""Losses, forward and backward; where PyTorch's decomposition scatters, a comparison does, so that they fuse."""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.numerics import Numerics
from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("losses")

_MEAN = 1
_REDUCED = "Reduction 0 gives every element's loss, 1 their mean, 2 their sum."
_SLOPE = "With mean reduction the gradient is divided by the number of elements."


@family(
    aten.nll_loss_backward.default,
    clauses=(
        "The gradient is -weight[target] * grad at the target class of each sample, 0 elsewhere and for "
        "ignored samples.",
        "With mean reduction grad is divided by total_weight.",
    ),
)
def nll_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """The gradient of nll_loss with respect to its input."""
    return _backward(grad, x, target, weight, reduction, ignore_index, total_weight, 0 if x.dim() < 2 else 1)


@family(
    aten.nll_loss2d_backward.default, clauses=("As nll_loss_backward, at every position of the image.",), row_major=True
)
def nll_loss2d_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """The gradient of nll_loss2d with respect to its input."""
    return _backward(grad, x, target, weight, reduction, ignore_index, total_weight, 1)


def _backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
    channel: int,
) -> torch.Tensor:
    if reduction == _MEAN:
        grad = grad / total_weight
    if x.dim() == 1 and target.dim() > 0:  # eager looks at the first target of a lone sample
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


@family(
    aten.soft_margin_loss_backward.default,
    clauses=(
        "The gradient is -target * sigmoid(-target * x) * grad, divided by the number of elements with mean reduction.",
    ),
)
def soft_margin_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    """The gradient of soft_margin_loss with respect to its input."""
    sign, value = accurate(target), accurate(x)
    slope = aten.neg.default(sign) * aten.sigmoid.default(aten.neg.default(sign * value)) * accurate(grad)
    return (slope / x.numel() if reduction == _MEAN else slope).to(x.dtype)


@family(
    "binary_cross_entropy_backward",
    clauses=(
        "The gradient is (x - target) / max(x (1 - x), 1e-12) * weight * grad, with 1e-12 as float32 has it.",
        _SLOPE,
    ),
)
def binary_cross_entropy_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    """The gradient of binary_cross_entropy with respect to its input."""
    value = accurate(x)
    slope = (
        accurate(grad) * (value - accurate(target)) / aten.clamp_min.default((1 - value) * value, 9.999999960041972e-13)
    )
    slope = slope if weight is None else slope * accurate(weight)
    return (slope / x.numel() if reduction == _MEAN else slope).to(x.dtype)


family.composite(
    "nll_loss",
    "nll_loss_forward",
    "nll_loss2d_forward",
    doc="Minus the score of each sample's target class.",
    clauses=(
        "A sample's loss is -weight[target] * x[target], 0 where the target is ignore_index; for images, at every "
        "position.",
        "Reduction 0 gives every loss, 1 their sum divided by total_weight, 2 their sum.",
        Clause(
            "total_weight is the sum of the weights of targets that are not ignored; with reduction 0 it is 0.",
            parameters=("reduction",),
        ),
        Clause("With mean reduction and nothing but ignored targets the loss is NaN.", About.NONFINITE),
        Clause("A target outside the classes, ignore_index aside, is an error.", parameters=("target",)),
    ),
)
for _name, _doc, _rule, _gradient in (
    ("mse_loss", "The squared difference.", "(x - target) squared", "2 (x - target) grad"),
    (
        "huber_loss",
        "The squared difference near 0, linear beyond delta.",
        "(x - target)^2 / 2 where |x - target| <= delta, else delta (|x - target| - delta / 2)",
        "(x - target) grad where |x - target| <= delta, else delta grad with the sign of x - target",
    ),
    (
        "smooth_l1_loss",
        "The absolute difference, rounded near 0.",
        "(x - target)^2 / (2 beta) where |x - target| < beta, else |x - target| - beta / 2",
        "(x - target) / beta grad where |x - target| < beta, else grad with the sign of x - target",
    ),
):
    family.composite(
        _name, _name, doc=_doc, clauses=(f"The loss is {_rule}.", _REDUCED, Clause("NaN gives NaN.", About.NONFINITE))
    )
    family.composite(
        f"{_name}_backward",
        f"{_name}_backward",
        clauses=(f"The gradient is {_gradient}.", _SLOPE),
        doc=f"The gradient of {_name} with respect to its input.",
    )
family.composite(
    "soft_margin_loss",
    "soft_margin_loss",
    doc="log(1 + exp(-target x)).",
    clauses=("The loss is log(1 + exp(-target * x)), for targets of 1 and -1.", _REDUCED),
)
family.composite(
    "binary_cross_entropy",
    "binary_cross_entropy",
    doc="The cross-entropy of probabilities.",
    numerics=Numerics(finite=True),
    clauses=(
        "The loss is -weight (target log(x) + (1 - target) log(1 - x)), logarithms being at least -100.",
        _REDUCED,
        Clause("An x outside [0, 1] is an error, or gives NaN.", About.NONFINITE),
    ),
)
family.composite(
    "binary_cross_entropy_with_logits",
    "binary_cross_entropy_with_logits",
    doc="The cross-entropy of sigmoids.",
    clauses=(
        "The loss is weight ((1 - target) x + (1 + (pos_weight - 1) target) log(1 + exp(-x))).",
        Clause("exp does not overflow: of a large negative x the loss is about -target x.", About.NONFINITE),
        _REDUCED,
    ),
)


# -- connectionist temporal classification ----------------------------------------------------------------------------

_TIME = "It recurs over time steps and labels whose numbers are data, so no graph writes it out."
family.opaque(
    "ctc_loss",
    "_ctc_loss",
    "_ctc_loss.Tensor",
    reason=_TIME,
    doc="Minus the log-likelihood of label sequences under all alignments, and its forward variables.",
)
family.opaque(
    "ctc_loss_backward",
    "_ctc_loss_backward",
    "_ctc_loss_backward.Tensor",
    reason=(
        f"{_TIME} It stays beside its forward, whose variables it reads: it gives the derivative by normalized "
        "log-probabilities plus exp(log_probs), which is not the derivative of the forward."
    ),
    doc="The gradient of ctc_loss with respect to what log_probs is the log_softmax of.",
)
