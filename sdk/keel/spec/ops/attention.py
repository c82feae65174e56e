"""Attention in pieces, forward and backward as a pair: the logsumexp that the one saves is what the other is made of.
"""
from __future__ import annotations

import torch

from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("attention")


def _scores(q: torch.Tensor, k: torch.Tensor, is_causal: bool, mask: torch.Tensor | None, scale: float) -> torch.Tensor:
    """Scaled and masked scores [..., queries, keys] in the accurate dtype."""
    scores = accurate(aten.matmul.default(accurate(q) * scale, aten.transpose.int(accurate(k), -2, -1)))
    if is_causal:
        rows = aten.unsqueeze.default(aten.arange.default(q.shape[-2], device=q.device), -1)
        columns = aten.arange.default(k.shape[-2], device=q.device)
        scores = aten.where.self(aten.ge.Tensor(rows, columns), scores, _minus_infinity(scores))
    if mask is not None:
        scores = (aten.where.self(mask, scores, _minus_infinity(scores)) if mask.dtype == torch.bool
                  else scores + accurate(mask))
    return scores


def _minus_infinity(like: torch.Tensor) -> torch.Tensor:
    return aten.full.default([], float("-inf"), dtype=like.dtype, device=like.device)


def _scale(q: torch.Tensor, scale: float | None) -> float:
    return float(q.shape[-1]) ** -0.5 if scale is None else scale


@family(aten._scaled_dot_product_flash_attention_for_cpu.default, clauses=(
    "The output is softmax(q k^T * scale + mask) v, the softmax over keys.",
    "logsumexp is that of the scaled and masked scores, per query, in float32 for 16-bit floats.",
    "With is_causal, query i sees keys 0 to i.",
    "A query that sees no key gives 0, and 0 for its logsumexp.",
))
def flash_attention_for_cpu(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
                            is_causal: bool = False, *, attn_mask: torch.Tensor | None = None,
                            scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and the logsumexp of its scores, [batch, heads, queries]."""
    if dropout_p:
        return NotImplemented  # eager has no dropout here either
    scores = _scores(q, k, is_causal, attn_mask, _scale(q, scale))
    top = aten.amax.default(scores, [-1], True)
    top = aten.masked_fill.Scalar(top, aten.eq.Scalar(top, float("-inf")), 0.0)
    weights = aten.exp.default(scores - top)
    total = aten.sum.dim_IntList(weights, [-1], True)
    total = aten.masked_fill.Scalar(total, aten.eq.Scalar(total, 0.0), 1.0)
    out = aten.matmul.default(weights / total, accurate(v))
    lse = aten.squeeze.dim(top + aten.log.default(total), -1)
    return out.to(q.dtype), lse


@family(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, clauses=(
    "The gradients are those of the forward's definition, with weights exp(scores - logsumexp).",
))
def flash_attention_for_cpu_backward(
        grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
        logsumexp: torch.Tensor, dropout_p: float, is_causal: bool, *, attn_mask: torch.Tensor | None = None,
        scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients with respect to query, key and value."""
    if dropout_p:
        return NotImplemented
    factor = _scale(q, scale)
    weights = aten.exp.default(_scores(q, k, is_causal, attn_mask, factor) - aten.unsqueeze.default(logsumexp, -1))
    g = accurate(grad)
    dv = aten.matmul.default(aten.transpose.int(weights, -2, -1), g)
    dweights = aten.matmul.default(g, aten.transpose.int(accurate(v), -2, -1))
    delta = aten.sum.dim_IntList(g * accurate(out), [-1], True)
    dscores = weights * (dweights - delta) * factor
    dq = aten.matmul.default(dscores, accurate(k))
    dk = aten.matmul.default(aten.transpose.int(dscores, -2, -1), accurate(q))
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)
