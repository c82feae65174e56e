"""Cross-entropy of a linear map, which PyTorch computes chunk by chunk so that all logits never exist at once.

Written out they do; a backend that can chunk should claim it. The forward gives the gradients for a gradient of 1 too.
"""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import Clause
from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("linear losses")

Tensor = torch.Tensor


def _scored(
    x: Tensor, linear_weight: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, ignore_index: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """(log-probabilities, each sample's weight, [samples, classes]: which class is the target; of targets that are
    probabilities, which PyTorch takes since 2.15, the weighted ones)
    """
    logits = aten.mm.default(accurate(x), aten.permute.default(linear_weight.to(accurate(x).dtype), [1, 0]))
    logits = logits if bias is None else logits + bias.to(logits.dtype)
    scores = aten._log_softmax.default(logits, 1, False)
    if target.is_floating_point():
        shares = target.to(scores.dtype) if weight is None else target.to(scores.dtype) * weight.to(scores.dtype)
        return scores, aten.sum.dim_IntList(shares, [1]), shares
    valid = aten.ne.Scalar(target, ignore_index)
    zero = aten.full.default([], 0, dtype=target.dtype, device=target.device)
    label = aten.where.self(valid, target, zero)
    each = valid.to(scores.dtype)
    if weight is not None:
        each = each * aten.index.Tensor(weight.to(scores.dtype), [label])
    classes = aten.arange.default(linear_weight.shape[0], device=x.device)
    return scores, each, aten.eq.Tensor(aten.unsqueeze.default(label, 1), classes)


def _losses(scores: Tensor, each: Tensor, own: Tensor) -> Tensor:
    if own.is_floating_point():
        return aten.neg.default(aten.sum.dim_IntList(scores * own, [1]))
    chosen = aten.where.self(own, scores, aten.full.default([], 0.0, dtype=scores.dtype, device=scores.device))
    return aten.neg.default(aten.sum.dim_IntList(chosen, [1]) * each)


def _averaged(each: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that add up to 1; probabilities are shared out among the samples, whatever weights their classes have."""
    if own.is_floating_point():
        return each / each.shape[0], own / each.shape[0]
    return each / aten.sum.dim_IntList(each, [0]), own


def _gradients(
    x: Tensor, linear_weight: Tensor, scores: Tensor, each: Tensor, own: Tensor, needs_grad: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """With respect to input, weight and bias, for a gradient of ``each``; empty where they are not wanted."""
    alone = aten.unsqueeze.default(each, 1)
    down = (
        aten.exp.default(scores) * alone - own
        if own.is_floating_point()
        else (aten.exp.default(scores) - own.to(scores.dtype)) * alone
    )

    def empty(*shape: int) -> Tensor:
        return aten.full.default(list(shape), 0, dtype=x.dtype, device=x.device)

    dx = aten.mm.default(down, linear_weight.to(down.dtype)).to(x.dtype) if needs_grad[0] else empty(0, 0)
    dweight = (
        aten.mm.default(aten.permute.default(down, [1, 0]), x.to(down.dtype)).to(x.dtype)
        if needs_grad[1]
        else empty(0, 0)
    )
    dbias = aten.sum.dim_IntList(down, [0]).to(x.dtype) if needs_grad[2] else empty(0)
    return dx, dweight, dbias


@family(
    "torch_nn::_linear_cross_entropy_batch_chunked",
    clauses=(
        Clause(
            "The loss is that of cross_entropy of input @ linear_weight^T + linear_bias, with reduction mean or sum.",
            parameters=("reduction",),
        ),
        "The other results are its gradients with respect to input, linear_weight and linear_bias, in input's "
        "dtype; empty "
        "where compute_*_grad is False.",
        "batch_chunk_size and acc_policy are what may be traded for memory; sums are in acc_dtype.",
    ),
    tags=frozenset({"contraction"}),
)
def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: Any,
    label_smoothing: float,
    batch_chunk_size: Any,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The cross-entropy of a linear map, and its gradients."""
    if label_smoothing:
        return NotImplemented
    scores, each, own = _scored(x, linear_weight, target, linear_bias, weight, ignore_index)
    if reduction == "mean":
        each, own = _averaged(each, own)
    loss = aten.sum.dim_IntList(_losses(scores, each, own), [0]).to(x.dtype)
    needs_grad = (compute_input_grad, compute_linear_weight_grad, compute_linear_bias_grad)
    return loss, *_gradients(x, linear_weight, scores, each, own, needs_grad)


@family(
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction",
    clauses=(
        "The losses are those of cross_entropy of input @ linear_weight^T + linear_bias, without reduction.",
        "batch_chunk_size and acc_policy are what may be traded for memory; sums are in acc_dtype.",
    ),
    tags=frozenset({"contraction"}),
)
def linear_cross_entropy_each(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: Any,
    batch_chunk_size: Any,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    """The cross-entropy of a linear map, of every sample."""
    return _losses(*_scored(x, linear_weight, target, linear_bias, weight, ignore_index)).to(x.dtype)
