"""Attention in pieces, forward and backward as a pair: the logsumexp that the one saves is what the other is made of.

PyTorch has an overload per kernel, which differ in what they return beside the result; all are members ``sdpa`` and
``sdpa_backward``. Dropout is refused: the backward would have to draw the forward's numbers again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.spec.bind import by_name
from keel.spec.clause import About, Clause
from keel.spec.freedoms import may_be_off, may_compute, may_round
from keel.spec.op import Family, Neutral
from keel.spec.ops.statistics import SMALL, accurate
from keel.spec.pytorch_kernels import Library
from keel.spec.rules import Args

aten = torch.ops.aten
family = Family("attention")

Tensor = torch.Tensor
FAST_EXPONENTIAL = 2.0**-13
"""PyTorch's kernel for processors adds the exponent's bits to a polynomial of degree 3 (Malossi et al., Fast
Exponential Computation on SIMD Architectures, 2015), which is off by 2^-13.2.
"""


def _grouped(x: Tensor, heads: Any) -> Tensor:
    """Keys or values with as many heads as queries have: each serves several in a row."""
    if x.shape[-3] == heads:
        return x
    many = heads // x.shape[-3]
    rows = aten.unsqueeze.default(x, -3)
    shape = [*x.shape[:-2], many, *x.shape[-2:]]
    return aten.reshape.default(aten.expand.default(rows, shape), [*x.shape[:-3], heads, *x.shape[-2:]])


def _ungrouped(x: Tensor, heads: Any) -> Tensor:
    """The sum over the queries' heads that a head of keys or values serves."""
    if x.shape[-3] == heads:
        return x
    many = x.shape[-3] // heads
    return aten.sum.dim_IntList(aten.reshape.default(x, [*x.shape[:-3], heads, many, *x.shape[-2:]]), [-3])


def _each_rounded(x: Tensor, like: Tensor) -> Tensor:
    """The gradient of ``like``, summed over queries' heads that it serves; kernels write one for each head first."""
    heads = like.shape[-3]
    return _ungrouped(x if x.shape[-3] == heads else may_round(x, like.dtype), heads).to(like.dtype)


def _scores(q: Tensor, k: Tensor, is_causal: bool, mask: Tensor | None, scale: float) -> Tensor:
    """Scaled and masked scores [..., queries, keys] in the accurate dtype."""
    keys = aten.transpose.int(accurate(_grouped(k, q.shape[-3])), -2, -1)
    scores = accurate(aten.matmul.default(accurate(q) * scale, keys))
    if is_causal:
        rows = aten.unsqueeze.default(aten.arange.default(q.shape[-2], device=q.device), -1)
        columns = aten.arange.default(k.shape[-2], device=q.device)
        scores = aten.where.self(aten.ge.Tensor(rows, columns), scores, _minus_infinity(scores))
    if mask is not None:
        scores = (
            aten.where.self(mask, scores, _minus_infinity(scores))
            if mask.dtype == torch.bool
            else scores + accurate(mask)
        )
    return scores


def _minus_infinity(like: Tensor) -> Tensor:
    return aten.full.default([], float("-inf"), dtype=like.dtype, device=like.device)


def scale_of(q: Tensor, scale: float | None) -> float:
    return float(q.shape[-1]) ** -0.5 if scale is None else scale


def _exponentials(x: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(x), as precise as attention of ``dtype`` asks for."""
    result = aten.exp.default(x)
    return may_be_off(result, FAST_EXPONENTIAL) if dtype in SMALL else result


def attended(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(scores) v and the logsumexp of the scores, both 0 for a query that sees no key."""
    top = aten.amax.default(scores, [-1], True)
    top = aten.masked_fill.Scalar(top, aten.eq.Scalar(top, float("-inf")), 0.0)
    weights = _exponentials(scores - top, v.dtype)
    total = aten.sum.dim_IntList(weights, [-1], True)
    total = aten.masked_fill.Scalar(total, aten.eq.Scalar(total, 0.0), 1.0)
    weights = may_round(weights / may_round(total, v.dtype), v.dtype)
    out = aten.matmul.default(weights, accurate(_grouped(v, scores.shape[-3])))
    return out, aten.squeeze.dim(top + aten.log.default(total), -1)


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, scores: Tensor, factor: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients with respect to query, key, value and the scores."""
    heads = q.shape[-3]
    weights = may_round(_exponentials(scores - aten.unsqueeze.default(logsumexp, -1), q.dtype), q.dtype)
    g = accurate(grad)
    dv = aten.matmul.default(aten.transpose.int(weights, -2, -1), g)
    dweights = aten.matmul.default(g, aten.transpose.int(accurate(_grouped(v, heads)), -2, -1))
    delta = may_compute(
        aten.sum.dim_IntList(g * accurate(out), [-1], True),
        lambda: aten.sum.dim_IntList(weights * dweights, [-1], True),
    )
    dscores = weights * (dweights - delta)
    scaled = may_round(dscores * factor, q.dtype)
    dq = aten.matmul.default(scaled, accurate(_grouped(k, heads)))
    dk = aten.matmul.default(aten.transpose.int(scaled, -2, -1), accurate(q))
    return dq.to(q.dtype), _each_rounded(dk, k), _each_rounded(dv, v), dscores


# -- forward ----------------------------------------------------------------------------------------------------------

_EXACT = (
    "Of 16-bit floats, scores, sums of exponentials and all accumulations are in float32 or better, in any order and "
    "any blocks, and an exponential is off by at most 2^-13 of itself; "
)
PRECISION = Clause(
    f"{_EXACT}only weights may be rounded to v's dtype before they are multiplied with v, before or after they are "
    "divided by their sum, which may be that of the rounded ones.",
    About.HALF | About.FLOAT32,
)
GRADIENTS_PRECISION = Clause(
    f"{_EXACT}only weights, gradients of scores, and the gradients of keys and values for each head of queries may be "
    "rounded to 16 bits before they are multiplied or added.",
    About.HALF | About.FLOAT32,
)
SLOPES = (
    "The gradient of a score is its weight times (grad v^T - delta); delta is the sum of grad * out, or that of "
    "weights times grad v^T, over a row."
)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    out, lse = attended(_scores(q, k, is_causal, mask, scale_of(q, scale)), v)
    return out.to(q.dtype), lse


def _nothing(q: Tensor, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """What stands for the state of a random generator that was not used."""
    return aten.full.default(list(shape), 0, dtype=dtype, device=q.device)


def _flash(a: Args, out: Tensor, lse: Tensor) -> tuple[Any, ...]:
    q = a["query"]
    seed, offset = _nothing(q, 2, dtype=torch.uint64), _nothing(q, dtype=torch.uint64)
    return out, lse, *_lengths(a), seed, offset, _nothing(q, 0, dtype=q.dtype)


def _efficient(a: Args, out: Tensor, lse: Tensor) -> tuple[Any, ...]:
    q, queries = a["query"], a["query"].shape[2]
    padded = (
        aten.constant_pad_nd.default(lse, [0, (queries + 31) // 32 * 32 - queries], float("inf"))
        if a["compute_log_sumexp"]
        else aten.slice.Tensor(lse, 2, 0, 0)
    )
    return out, padded, _nothing(q), _nothing(q)


def _cudnn(a: Args, out: Tensor, lse: Tensor) -> tuple[Any, ...]:
    q = a["query"]
    return out, aten.unsqueeze.default(lse, -1), *_lengths(a), _nothing(q), _nothing(q), None


def _overrideable(a: Args, out: Tensor, lse: Tensor) -> tuple[Any, ...]:
    q = a["query"]
    lse = lse if q.dim() == 4 else aten.unsqueeze.default(lse, 0)
    return out, lse, *_lengths(a), _nothing(q), _nothing(q), None


def _lengths(a: Args) -> tuple[Any, ...]:
    """The results that stand for the ends of sequences, and the largest lengths."""
    return None, None, a["query"].shape[-2], a["key"].shape[-2]


def _forward(overload: str, results: Callable[[Args, Tensor, Tensor], tuple[Any, ...]]) -> Callable[..., Any]:
    """The form of an overload that returns ``results`` of the arguments, the output and the logsumexp."""

    def form(a: Args) -> Any:
        if a["dropout_p"] or a.get("return_debug_mask"):
            return NotImplemented
        bias = a.get("attn_bias")
        return results(a, *_attention(a["query"], a["key"], a["value"], bias, a["is_causal"], a["scale"]))

    return by_name(overload, form)


_FORWARD = {
    "aten._scaled_dot_product_flash_attention.default": _flash,
    "aten._scaled_dot_product_efficient_attention.default": _efficient,
    "aten._scaled_dot_product_cudnn_attention.default": _cudnn,
    "aten._scaled_dot_product_fused_attention_overrideable.default": _overrideable,
}


@family(
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    clauses=(
        Clause(
            "The output is softmax(q k^T * scale + mask) v, the softmax over keys; scale defaults to the root "
            "of 1 / q.size(-1), and a bool mask is -inf where it is False.",
            About.BOOL,
        ),
        Clause(
            "logsumexp is the natural logarithm of the sum of exponentials of the scaled and masked scores, "
            "per query, in float32 for 16-bit floats.",
            About.HALF | About.FLOAT32,
        ),
        Clause("With is_causal, query i sees keys 0 to i.", parameters=("is_causal",)),
        "A query that sees no key gives 0; its logsumexp has a meaning for sdpa_backward only.",
        "With fewer heads of keys and values than of queries, each serves equally many consecutive heads of queries.",
        "Without dropout the state of the random generator is not read, and what stands for it is not specified.",
        PRECISION,
    ),
    forms={name: _forward(name, results) for name, results in _FORWARD.items()},
    tags=frozenset({"contraction"}),
    neutral=Neutral(
        {"key": (-2, 0.0), "value": (-2, 0.0)},
        fixed=(("query", -1), ("key", -1)),
        masks={"aten._scaled_dot_product_flash_attention_for_cpu.default": "attn_mask"},
        causal=("is_causal", "query"),
    ),
    libraries=(
        Library(("_scaled_dot_product_flash_attention_for_cpu",), "cpu"),
        Library(
            (
                "_scaled_dot_product_flash_attention",
                "_scaled_dot_product_efficient_attention",
                "_scaled_dot_product_cudnn_attention",
            ),
            "cuda",
        ),
    ),
)
def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention and the logsumexp of its scores, [batch, heads, queries]."""
    if dropout_p:
        return NotImplemented  # eager has no dropout here either
    return _attention(q, k, v, attn_mask, is_causal, scale)


# -- backward ---------------------------------------------------------------------------------------------------------


def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factor = scale_of(q, scale)
    scores = _scores(q, k, is_causal, mask, factor)
    return gradients(grad, q, k, v, out, logsumexp, scores, factor)


def _in_sixteens(x: Tensor) -> Tensor:
    """The same in rows of 16 elements, as the kernel lays them out."""
    n = x.shape[-1]
    more = (n + 15) // 16 * 16 - n
    if isinstance(more, int) and more == 0:
        return x
    return aten.slice.Tensor(aten.constant_pad_nd.default(x, [0, more]), -1, 0, n)


def _efficient_bias(a: Args, dscores: Tensor) -> Tensor | None:
    dbias = _over(dscores, a["attn_bias"]) if a["grad_input_mask"][3] else None
    return None if dbias is None else _in_sixteens(dbias)


def _backward_form(
    overload: str,
    logsumexp: Callable[[Args], Tensor],
    dbias: Callable[[Args, Tensor], Tensor | None] | None = None,
) -> Callable[..., Any]:
    """The form of an overload with a ``logsumexp`` as sdpa has it.  ``dbias`` makes the bias' gradient of that of the
    scores, in those overloads that return one.
    """

    def form(a: Args) -> Any:
        if a["dropout_p"]:
            return NotImplemented
        grad = a["grad_out_" if "grad_out_" in a else "grad_out"]
        q, k, v, out = (a[name] for name in ("query", "key", "value", "out"))
        *result, dscores = _backward(grad, q, k, v, a.get("attn_bias"), out, logsumexp(a), a["is_causal"], a["scale"])
        return tuple(result) if dbias is None else (*result, dbias(a, dscores))

    return by_name(overload, form)


_BACKWARD: Mapping[str, tuple[Any, ...]] = {
    "aten._scaled_dot_product_flash_attention_backward.default": (lambda a: a["logsumexp"],),
    "aten._scaled_dot_product_efficient_attention_backward.default": (
        lambda a: aten.slice.Tensor(a["logsumexp"], 2, 0, a["query"].shape[2]),
        _efficient_bias,
    ),
    "aten._scaled_dot_product_cudnn_attention_backward.default": (lambda a: aten.squeeze.dim(a["logsumexp"], -1),),
    "aten._scaled_dot_product_fused_attention_overrideable_backward.default": (
        lambda a: a["logsumexp"] if a["query"].dim() == 4 else aten.squeeze.dim(a["logsumexp"], 0),
        lambda a, dscores: _over(dscores, a["attn_bias"]),
    ),
}


def _over(dscores: Tensor, mask: Tensor | None) -> Tensor | None:
    """The gradient of what was broadcast to the scores and added; 0 for a mask that is not a number."""
    if mask is None:
        return None
    if not mask.dtype.is_floating_point:
        return aten.full.default(list(mask.shape), 0, dtype=mask.dtype, device=mask.device)
    extra = dscores.dim() - mask.dim()
    dims = [d for d in range(dscores.dim()) if d < extra or (mask.shape[d - extra] == 1 != dscores.shape[d])]
    result = aten.sum.dim_IntList(dscores, dims, True) if dims else dscores
    return aten.reshape.default(result, list(mask.shape)).to(mask.dtype)


@family(
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
    clauses=(
        "The gradients are those of the forward's definition, with weights exp(scores - logsumexp).",
        Clause(
            "The gradient of an additive mask is that of the scores, summed over what it was broadcast over; "
            "None where grad_input_mask says so.",
            About.BROADCAST,
        ),
        SLOPES,
        GRADIENTS_PRECISION,
    ),
    forms={name: _backward_form(name, *form) for name, form in _BACKWARD.items()},
    tags=frozenset({"contraction"}),
    libraries=(
        Library(("_scaled_dot_product_flash_attention_for_cpu_backward",), "cpu"),
        Library(
            (
                "_scaled_dot_product_flash_attention_backward",
                "_scaled_dot_product_efficient_attention_backward",
                "_scaled_dot_product_cudnn_attention_backward",
            ),
            "cuda",
        ),
    ),
)
def sdpa_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to query, key and value."""
    if dropout_p:
        return NotImplemented
    dq, dk, dv, _ = _backward(grad, q, k, v, attn_mask, out, logsumexp, is_causal, scale)
    return dq, dk, dv
