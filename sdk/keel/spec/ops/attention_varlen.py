"""Attention of sequences of unequal lengths laid end to end, and attention whose scores a program computes.

Written out, the former is dense attention of all tokens with all tokens under a mask that keeps sequences apart: right,
but work and memory grow with the square of the total, so a backend that has it should claim it.
"""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.bind import by_name
from keel.spec.clause import About, Clause
from keel.spec.op import Family
from keel.spec.ops.attention import GRADIENTS_PRECISION, PRECISION, SLOPES, attended, gradients, scale_of
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import Library
from keel.spec.rules import Args

aten = torch.ops.aten
family = Family("variable-length attention", profile="attention")

Tensor = torch.Tensor
_VARLEN, _VARLEN_BACKWARD = "torch_attn._varlen_attn.default", "torch_attn._varlen_attn_backward.default"


def _heads_first(x: Tensor) -> Tensor:
    """[..., tokens, heads, d] as [..., heads, tokens, d]; its own inverse."""
    return aten.transpose.int(x, -3, -2)


def _outer(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """As a column and a row."""
    return aten.unsqueeze.default(x, 1), aten.unsqueeze.default(y, 0)


def _sequences(tokens: Tensor, cumulative: Tensor) -> Tensor:
    """The sequence of each token."""
    token, end = _outer(tokens, aten.slice.Tensor(cumulative, 0, 1))
    return aten.sum.dim_IntList(aten.ge.Tensor(token, end), [1])


def _visible(q: Tensor, k: Tensor, cum_q: Tensor | None, cum_k: Tensor | None, left: Any, right: Any) -> Tensor | None:
    """[queries, keys] of the tokens of q and k: same sequence, and at most ``right`` and ``left`` of the diagonal that
    ends with the sequences' last tokens. None if all see all.
    """
    at_q, at_k = (aten.arange.default(x.shape[-3], device=x.device) for x in (q, k))
    results: list[Tensor] = []
    shift: Any = k.shape[-3] - q.shape[-3]
    if cum_q is not None and cum_k is not None:
        own_q, own_k = _sequences(at_q, cum_q), _sequences(at_k, cum_k)
        results.append(aten.eq.Tensor(*_outer(own_q, own_k)))
        last = cum_q.shape[0] - 2  # tokens behind the last sequence see what they like
        own_q, own_k = (aten.clamp_max.default(own, last) for own in (own_q, own_k))
        ends = aten.slice.Tensor(cum_k - cum_q, 0, 1)  # the last tokens meet on the diagonal
        shift = aten.index.Tensor(ends, [own_q])
    place, key = _outer(at_q + shift, at_k)
    if right is not None:
        results.append(aten.le.Tensor(key, place + right))
    if left is not None:
        results.append(aten.ge.Tensor(key, place - left))
    for more in results[1:]:
        results[0] = aten.bitwise_and.Tensor(results[0], more)
    return results[0] if results else None


def _scores(q: Tensor, k: Tensor, visible: Tensor | None, bias: Tensor | None, factor: float) -> Tensor:
    """Of heads before tokens."""
    heads = q.shape[-3]
    if k.shape[-3] != heads:
        k = aten.repeat_interleave.self_int(k, heads // k.shape[-3], -3)
    scores = aten.matmul.default(accurate(q) * factor, aten.transpose.int(accurate(k), -2, -1))
    scores = scores if bias is None else scores + accurate(bias)
    if visible is None:
        return scores
    return aten.where.self(visible, scores, aten.full.default([], float("-inf"), dtype=scores.dtype, device=q.device))


def _bounds(is_causal: bool, left: Any, right: Any) -> tuple[Any, Any]:
    """How far a query sees to the left and to the right; None for all the way, which callers also write as -1."""
    left = None if left is None or (isinstance(left, int) and left < 0) else left
    right = None if right is None or (isinstance(right, int) and right < 0) else right
    return left, 0 if is_causal else right


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cum_q: Tensor | None,
    cum_k: Tensor | None,
    is_causal: bool,
    scale: Any,
    left: Any,
    right: Any,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    visible = _visible(q, k, cum_q, cum_k, *_bounds(is_causal, left, right))
    scores = _scores(_heads_first(q), _heads_first(k), visible, bias, scale_of(q, scale))
    out, lse = attended(scores, _heads_first(v))
    return _heads_first(out).to(q.dtype), lse


def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cum_q: Tensor | None,
    cum_k: Tensor | None,
    is_causal: bool,
    scale: Any,
    left: Any,
    right: Any,
) -> tuple[Tensor, ...]:
    visible, factor = _visible(q, k, cum_q, cum_k, *_bounds(is_causal, left, right)), scale_of(q, scale)
    grad, q, k, v, out = (_heads_first(x) for x in (grad, q, k, v, out))
    result = gradients(grad, q, k, v, out, lse, _scores(q, k, visible, None, factor), factor)[:3]
    return tuple(_heads_first(x) for x in result)


def _state(q: Tensor, *shape: int, dtype: torch.dtype = torch.uint64) -> Tensor:
    return aten.full.default(list(shape), 0, dtype=dtype, device=q.device)


def _varlen(a: Args) -> Any:
    if a["cu_seq_k"] is None or a.get("seqused_k") is not None or a.get("block_table") is not None:
        return NotImplemented
    names = ("query", "key", "value", "cu_seq_q", "cu_seq_k", "is_causal", "scale")
    out, lse = _forward(*(a[name] for name in names), *(a["window_size"] or (None, None)))
    return out, lse, _state(a["query"], 2)


def _varlen_backward(a: Args) -> Any:
    names = ("grad_out", "query", "key", "value", "out", "lse", "cu_seq_q", "cu_seq_k", "is_causal", "scale")
    return _backward(*(a[name] for name in names), *(a["window_size"] or (None, None)))


@family(
    "_flash_attention_forward",
    "torch_attn::_varlen_attn",
    clauses=(
        "Tokens are [batch, tokens, heads, d] of sequences of one length, or [tokens, heads, d] of sequences that end "
        "where cum_seq_q and cum_seq_k say; a query sees the keys of its own sequence.",
        Clause(
            "A query sees window_size_left keys to the left of the diagonal and window_size_right to the right; -1 or "
            "None is all of them, and is_causal means 0 keys to the right. The diagonal ends with the sequences' last "
            "tokens.",
            parameters=("query",),
        ),
        "The output is softmax(q k^T * scale) v over the keys seen, and 0 where no key is seen.",
        Clause("logsumexp is [batch, heads, tokens] or [heads, tokens], natural, in float32.", About.FLOAT32),
        "Results for tokens behind the last sequence are not specified.",
        PRECISION,
    ),
    forms={_VARLEN: by_name(_VARLEN, _varlen)},
    tags=frozenset({"contraction"}),
    cpu=None,
    libraries=(Library(("_flash_attention_forward",), "cuda"),),
)
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: Any = None,
    window_size_right: Any = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: Any = None,
) -> tuple[Any, ...]:
    """Attention of tokens before heads: of a batch, or of sequences laid end to end."""
    unusual = (seqused_k, alibi_slopes, block_table)
    if (
        dropout_p
        or return_debug_mask
        or any(t is not None for t in unusual)
        or (cum_seq_q is None) != (cum_seq_k is None)
    ):
        return NotImplemented
    out, lse = _forward(q, k, v, cum_seq_q, cum_seq_k, is_causal, scale, window_size_left, window_size_right)
    return out, lse, _state(q, 2), _state(q), _state(q, 0, dtype=q.dtype)


@family(
    "_flash_attention_backward",
    "torch_attn::_varlen_attn_backward",
    clauses=(
        "The gradients are those of varlen_attention's definition, with weights exp(scores - logsumexp).",
        SLOPES,
        GRADIENTS_PRECISION,
    ),
    forms={_VARLEN_BACKWARD: by_name(_VARLEN_BACKWARD, _varlen_backward)},
    tags=frozenset({"contraction"}),
    cpu=None,
    libraries=(Library(("_flash_attention_backward",), "cuda"),),
)
def varlen_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    rng_state: Any,
    unused: Any,
    *,
    scale: float | None = None,
    window_size_left: Any = None,
    window_size_right: Any = None,
) -> tuple[Tensor, ...]:
    """Gradients with respect to query, key and value."""
    if dropout_p or (cum_seq_q is None) != (cum_seq_k is None):
        return NotImplemented
    return _backward(
        grad, q, k, v, out, logsumexp, cum_seq_q, cum_seq_k, is_causal, scale, window_size_left, window_size_right
    )


_TAGS = frozenset({"contraction", "control"})
family.primitive(
    "flex_attention",
    "higher_order::flex_attention",
    tags=_TAGS,
    dtypes=(torch.float32, torch.bfloat16),
    doc="Attention whose scores are what a graph makes of each score and its place.",
    clauses=(
        "score_mod gets a scaled score, its batch, head, query and key; mask_mod of the block mask tells from the same "
        "four whether the query sees the key.",
        "A block that the block mask leaves out is not seen; one that it calls full is seen whole, without mask_mod.",
        "The output is softmax(scores) v over the keys seen, and 0 where no key is seen.",
        Clause("logsumexp is to base 2, in float32; the third result has each query's largest score.", About.FLOAT32),
        PRECISION,
    ),
)
family.primitive(
    "flex_attention_backward",
    "higher_order::flex_attention_backward",
    tags=_TAGS,
    cpu=None,
    dtypes=(torch.float32, torch.bfloat16),
    doc="The gradients of flex_attention with respect to query, key, value and what score_mod captures.",
    clauses=(
        "The gradient of a score is weight * (gradient of the weight - the row's sum of output times its gradient), "
        "and goes through joint_graph.",
        "A gradient of logsumexp counts, if there is one.",
        "Gradients of captured tensors are None where they need none.",
        GRADIENTS_PRECISION,
    ),
)
