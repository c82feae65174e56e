"""The layers that nn.MultiheadAttention and nn.TransformerEncoderLayer become when nothing is to be differentiated."""

from __future__ import annotations

import math
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.device_facts import GELU_BY_TANH
from keel.spec.freedoms import may_round
from keel.spec.op import Family

aten = torch.ops.aten
family = Family("transformer layers")
Tensor = torch.Tensor

_MASK = Clause(
    "mask is true, or not 0, where an element is masked out; mask_type says what its sizes are: 0 [queries, keys], 1 "
    "[batch, keys], 2 of the scores' own sizes.",
    parameters=("mask",),
)
_NOTHING_SEEN = Clause("A row in which every key is masked is NaN.", About.NONFINITE)


def _true(mask: Tensor) -> Tensor:
    """Layers hand on masks of -infinity and 0."""
    return mask if mask.dtype == torch.bool else aten.ne.Scalar(mask, 0)


def _hidden(mask: Tensor, like: Tensor, mask_type: int | None) -> Tensor:
    """The mask, ready to be broadcast with scores [batch, heads, queries, keys]."""
    batch, keys = like.shape[0], like.shape[-1]
    mask = _true(mask)
    match mask_type:
        case 0:
            return aten.view.default(mask, [1, 1, like.shape[-2], keys])
        case 1:
            return aten.view.default(mask, [batch, 1, 1, keys])
    return mask


@family(
    "_masked_softmax",
    clauses=(
        Clause(
            "As softmax of x with -infinity where mask is true; over the last dimension unless dim is given.",
            About.NONFINITE,
        ),
        _MASK,
        _NOTHING_SEEN,
    ),
    tags=frozenset({"reduction"}),
)
def masked_softmax(x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """softmax over the keys that are not masked out."""
    hidden = _hidden(mask, x, mask_type) if x.dim() == 4 else _true(mask)
    masked = aten.masked_fill.Scalar(x, hidden, float("-inf"))
    return aten._softmax.default(masked, x.dim() - 1 if dim is None else dim, False)


@family(
    "_masked_softmax_backward",
    clauses=("As the gradient of softmax from its result; 0 where mask is true.",),
    tags=frozenset({"reduction"}),
)
def masked_softmax_backward(grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """The gradient of masked_softmax."""
    mask = _true(mask)
    result = aten._softmax_backward_data.default(
        aten.masked_fill.Scalar(grad, mask, 0),
        aten.masked_fill.Scalar(output, mask, 0),
        output.dim() - 1 if dim is None else dim,
        output.dtype,
    )
    return aten.masked_fill.Scalar(result, mask, 0)


def _heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, width] to [batch, heads, length, width / heads]."""
    batch, length, width = x.shape
    return aten.permute.default(aten.reshape.default(x, [batch, length, heads, width // heads]), [0, 2, 1, 3])


@family(
    "_transform_bias_rescale_qkv",
    clauses=(
        Clause(
            "qkv is [batch, length, 3 * width]; the results are [batch, heads, length, width / heads].",
            parameters=("qkv",),
        ),
        "Its part of the bias is added to each; queries are divided by the square root of width / heads.",
    ),
)
def split_queries_keys_values(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values by heads."""
    width = qkv.shape[2] // 3
    biased = qkv + qkv_bias
    q, k, v = (_heads(aten.slice.Tensor(biased, 2, i * width, (i + 1) * width), num_heads) for i in range(3))
    parts = (q * (1 / math.sqrt(width // num_heads)), k, v)
    return tuple(aten.clone.default(p, memory_format=torch.contiguous_format) for p in parts)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    *batch, width = x.shape
    flat = aten.reshape.default(x, [math.prod(batch), width])
    out = aten.addmm.default(bias, flat, aten.permute.default(weight, [1, 0]))
    return aten.view.default(out, [*batch, weight.shape[0]])


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
) -> tuple[Tensor, Tensor]:
    """(what the heads see, side by side; the weights that they see it by)"""
    width = query.shape[2]
    projections = [
        (
            t,
            aten.slice.Tensor(weight, 0, i * width, (i + 1) * width),
            aten.slice.Tensor(bias, 0, i * width, (i + 1) * width),
        )
        for i, t in enumerate((query, key, value))
    ]
    q, k, v = (_heads(_linear(*g), heads) for g in projections)
    q = q * (1 / math.sqrt(width // heads))
    scores = _products(q, aten.permute.default(k, [0, 1, 3, 2]))
    weights = aten._softmax.default(scores, 3, False) if mask is None else masked_softmax(scores, mask, 3, mask_type)
    rounded = may_round(weights, query.dtype)  # kernels divide by their sum after the product, too
    attended = aten.permute.default(_products(rounded, v), [0, 2, 1, 3])
    return aten.reshape.default(attended, list(query.shape)), weights


def _products(a: Tensor, b: Tensor) -> Tensor:
    batch, heads, rows = a.shape[:3]
    flat = (aten.reshape.default(t, [batch * heads, *t.shape[2:]]) for t in (a, b))
    return aten.view.default(aten.bmm.default(*flat), [batch, heads, rows, b.shape[3]])


@family(
    "_native_multi_head_attention",
    clauses=(
        "Queries, keys and values are [batch, length, width], and multiplied by the first, second and third part of "
        "qkv_weight.",
        "The weights are softmax(q k^T / sqrt(width / heads)), over the keys that are not masked out.",
        _MASK,
        Clause(
            "The second result holds the weights, averaged over heads if average_attn_weights; None without "
            "need_weights.",
            parameters=("average_attn_weights",),
        ),
    ),
)
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads, with the products before and after it."""
    attended, weights = _attention(query, key, value, num_head, qkv_weight, qkv_bias, mask, mask_type)
    if average_attn_weights:
        weights = aten.sum.dim_IntList(weights, [1]) / num_head
    return _linear(attended, proj_weight, proj_bias), weights if need_weights else None


@family(
    "_transformer_encoder_layer_fwd",
    clauses=(
        Clause(
            "With attention A, layer norms N1 and N2 and the two products F with relu or gelu between them: y = N1(x + "
            "A(x)), then N2(y + F(y)); if norm_first, y = x + A(N1(x)), then y + F(N2(y)).",
            parameters=("norm_first",),
        ),
        _MASK,
    ),
)
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """An encoder layer of a transformer, whole."""

    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return aten.native_layer_norm.default(x, [embed_dim], weight, bias, eps)[0]

    x = normed(src, norm_weight_1, norm_bias_1) if norm_first else src
    attended, _ = _attention(x, x, x, num_heads, qkv_weight, qkv_bias, mask, mask_type)
    x = src + _linear(attended, proj_weight, proj_bias)
    x = x if norm_first else normed(x, norm_weight_1, norm_bias_1)
    inner = _linear(normed(x, norm_weight_2, norm_bias_2) if norm_first else x, ffn_weight_1, ffn_bias_1)
    inner = aten.gelu.default(inner, approximate=_gelu(inner)) if use_gelu else aten.relu.default(inner)
    x = x + _linear(inner, ffn_weight_2, ffn_bias_2)
    return x if norm_first else normed(x, norm_weight_2, norm_bias_2)


def _gelu(x: Tensor) -> Any:
    """What the fused product computes: on CUDA by tanh, elsewhere by erf."""
    return "tanh" if x.device.type in GELU_BY_TANH else "none"
