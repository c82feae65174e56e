"""Losses of margins between classes, forward and backward.

PyTorch's decomposition of multilabel_margin_loss counts targets behind the first -1, and that of multi_margin_loss
gives a lone sample a dimension.
"""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("margin losses")

Tensor = torch.Tensor
_NONE, _MEAN = 0, 1
_REDUCED = "Reduction 0 gives each sample's loss, 1 their mean, 2 their sum."


def _zero(like: Tensor) -> Tensor:
    return aten.full.default([], 0.0, dtype=like.dtype, device=like.device)


def _rows(x: Tensor) -> Tensor:
    """A lone sample as a batch of one."""
    return x if x.dim() > 1 else aten.view.default(x, [1, x.numel()])


def _reduced(losses: Tensor, reduction: int, lone: bool) -> Tensor:
    """Of one loss per sample."""
    if reduction == _NONE:
        return aten.view.default(losses, []) if lone else losses
    total = aten.sum.dim_IntList(losses, [0])
    return total / losses.shape[0] if reduction == _MEAN else total


def _share(grad: Tensor, count: Any, reduction: int) -> Tensor:
    """What each sample's loss has of the gradient, as a column."""
    g = accurate(grad)
    column = aten.view.default(g, [count if reduction == _NONE else 1, 1])
    return column / count if reduction == _MEAN else column


def _of(classes: Any, target: Tensor) -> Tensor:
    """[..., classes]: which class is the target."""
    numbers = aten.arange.default(classes, device=target.device)
    return aten.eq.Tensor(aten.unsqueeze.default(target, -1), numbers)


# -- one target per sample --------------------------------------------------------------------------------------------


def _margins(x: Tensor, target: Tensor, margin: Any, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(margins that are not kept, 0 where they are; weight over the number of classes; which class is the target)"""
    classes = x.shape[1]
    own = _of(classes, aten.view.default(target, [x.shape[0]]))
    index = aten.view.default(target, [x.shape[0], 1])
    margins = margin - aten.gather.default(x, 1, index) + x
    lacking = aten.bitwise_and.Tensor(aten.gt.Scalar(margins, 0), aten.bitwise_not.default(own))
    each = aten.full.default([1, 1], 1.0, dtype=x.dtype, device=x.device)
    if weight is not None:
        each = aten.index.Tensor(accurate(weight), [index])
    return aten.where.self(lacking, margins, _zero(margins)), each / classes, own


@family(
    "multi_margin_loss",
    clauses=(
        "A sample's loss is the sum over the other classes of max(0, margin - x[target] + x) ** p, times the target's "
        "weight, divided by the number of classes.",
        Clause("p is 1 or 2.", parameters=("p",)),
        _REDUCED,
        Clause("A lone sample with a target of no dimension gives a loss of no dimension.", About.SCALAR),
    ),
)
def multi_margin_loss(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """How far other classes come closer to the target than the margin."""
    margins, each, _ = _margins(accurate(_rows(x)), target, margin, weight)
    losses = aten.sum.dim_IntList((margins if p == 1 else margins * margins) * each, [1])
    return _reduced(losses, reduction, target.dim() == 0).to(x.dtype)


@family(
    "multi_margin_loss_backward",
    clauses=("The gradient is that of multi_margin_loss; where a margin is just kept it is 0.",),
)
def multi_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """The gradient of multi_margin_loss with respect to its input."""
    rows = accurate(_rows(x))
    margins, each, own = _margins(rows, target, margin, weight)
    slope = aten.gt.Scalar(margins, 0).to(margins.dtype) if p == 1 else 2 * margins
    slope = slope * each * _share(grad, rows.shape[0], reduction)
    total = aten.sum.dim_IntList(slope, [1], True)
    return aten.view.default(aten.where.self(own, aten.neg.default(total), slope), list(x.shape)).to(x.dtype)


# -- several targets per sample ---------------------------------------------------------------------------------------


def _listed(target: Tensor) -> tuple[Tensor, Tensor]:
    """(which targets stand before the first negative one, [samples, targets, classes]: which class each is)"""
    many = target.shape[1]
    place = aten.arange.default(many, device=target.device)
    end = aten.full.default([], many, dtype=torch.int64, device=target.device)
    first = aten.amin.default(aten.where.self(aten.lt.Scalar(target, 0), place, end), [1], True)
    counts = aten.lt.Tensor(place, first)
    return counts, aten.bitwise_and.Tensor(_of(many, target), aten.unsqueeze.default(counts, 2))


def _lacking(x: Tensor, target: Tensor, counts: Tensor, own: Tensor) -> Tensor:
    """[samples, targets, classes]: by how much the margin to a class that is not a target falls short, else 0."""
    index = aten.clamp_min.default(target, 0)
    margins = 1 - aten.unsqueeze.default(aten.gather.default(x, 1, index), 2) + aten.unsqueeze.default(x, 1)
    other = aten.bitwise_not.default(aten.any.dim(own, 1, True))
    holds = aten.bitwise_and.Tensor(
        aten.bitwise_and.Tensor(aten.gt.Scalar(margins, 0), other), aten.unsqueeze.default(counts, 2)
    )
    return aten.where.self(holds, margins, _zero(margins))


@family(
    "multilabel_margin_loss_forward",
    clauses=(
        "A sample's targets are the classes listed before the first -1; its loss is the sum, over its "
        "targets and over the classes that are not, of max(0, 1 - x[target] + x), divided by the number of classes.",
        Clause("A target that is listed twice counts twice.", parameters=("target",)),
        _REDUCED,
        "The second result is 1 for classes that are targets, else 0.",
    ),
)
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """How far other classes come closer to the targets than 1, and which classes are targets."""
    rows, places = accurate(_rows(x)), _rows(target)
    counts, own = _listed(places)
    losses = aten.sum.dim_IntList(_lacking(rows, places, counts, own), [1, 2]) / rows.shape[1]
    result = aten.view.default(aten.any.dim(own, 1), list(target.shape)).to(x.dtype)
    return _reduced(losses, reduction, target.dim() < 2).to(x.dtype), result


@family(
    "multilabel_margin_loss_backward",
    clauses=("The gradient is that of multilabel_margin_loss; where a margin is just kept it is 0.",),
    row_major=True,
)
def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """The gradient of multilabel_margin_loss with respect to its input."""
    rows, places = accurate(_rows(x)), _rows(target)
    counts, own = _listed(places)
    slope = aten.gt.Scalar(_lacking(rows, places, counts, own), 0).to(rows.dtype)
    down = aten.sum.dim_IntList(slope, [2], True)  # a target goes down once per class it lacks
    slope = slope - aten.where.self(own, down, _zero(down))
    total = aten.sum.dim_IntList(slope, [1]) * (_share(grad, rows.shape[0], reduction) / rows.shape[1])
    return aten.view.default(total, list(x.shape)).to(x.dtype)
