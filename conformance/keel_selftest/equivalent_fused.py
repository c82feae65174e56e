"""Benign variants in 16 bits: composites fused, tiled and rounded where their clauses leave that open."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode

from keel.opset import OPSET, Op, decomposition_of
from keel_conformance.pytree import tensor_leaves, tree_map

from .attention_ways import Setting, Way, attention, gradients
from .equivalent import compiled, replacing
from .rewiring import run, run_eager, with_layout_of

HALVES = (torch.float16, torch.bfloat16)
FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu"
BACKWARD = f"{FORWARD}_backward"


def setting(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scale: float | None) -> Setting | None:
    """The arguments of attention in 16 bits; None of others, and where there is nothing to attend to."""
    if q.dtype not in HALVES or not q.numel() or not k.numel() or k.shape[1] != q.shape[1]:
        return None
    bias = None
    if causal:
        visible = torch.arange(k.shape[-2]) <= torch.arange(q.shape[-2])[:, None]
        bias = torch.where(visible, 0.0, float("-inf"))
    if mask is not None:
        added = torch.where(mask, 0.0, float("-inf")) if mask.dtype == torch.bool else mask.float()
        bias = added if bias is None else added + bias
        bias = bias.expand(*bias.shape[:-1], k.shape[-2])
    return Setting(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale, bias)


def attended(
    way: Way,
    op: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    s = setting(q, k, v, is_causal, attn_mask, scale)
    return op(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale) if s is None else attention(s, way)


def differentiated(
    way: Way,
    op: Any,
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
) -> Any:
    s = setting(q, k, v, is_causal, attn_mask, scale)
    if s is None:
        return op(grad, q, k, v, out, logsumexp, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    return gradients(grad, out, logsumexp, s, way)


@replacing(FORWARD)
def attention_in_blocks(op: Any, *args: Any, **kw: Any) -> Any:
    """Attention in 16 bits goes by blocks of 64 keys, with weights in 16 bits, as FlashAttention-2 does."""
    return attended(Way(block=64), op, *args, **kw)


@replacing(FORWARD)
def attention_from_the_last_key(op: Any, *args: Any, **kw: Any) -> Any:
    """Attention in 16 bits goes through the keys in reverse order, and divides by the sum of rounded weights."""
    return attended(Way("backwards", block=16, sum_of_rounded=True), op, *args, **kw)


@replacing(FORWARD)
def attention_by_parts(op: Any, *args: Any, **kw: Any) -> Any:
    """Attention in 16 bits is computed for parts of the keys, which are joined by their logsumexps."""
    return attended(Way(parts=3), op, *args, **kw)


@replacing(FORWARD)
def attention_unfused(op: Any, *args: Any, **kw: Any) -> Any:
    """Attention in 16 bits writes its weights in 16 bits, and multiplies them with the values."""
    return attended(Way(weights="divided"), op, *args, **kw)


@replacing(BACKWARD)
def attention_gradients_in_blocks(op: Any, *args: Any, **kw: Any) -> Any:
    """The gradients of attention in 16 bits go by blocks of 64 keys, with weights and their gradients in 16 bits."""
    return differentiated(Way(block=64), op, *args, **kw)


@replacing(BACKWARD)
def attention_gradients_by_weights(op: Any, *args: Any, **kw: Any) -> Any:
    """The gradients of attention in 16 bits are those of softmax for weights in 16 bits; the output is not read."""
    return differentiated(Way("backwards", weights="divided", delta="weights"), op, *args, **kw)


@replacing("aten._softmax")
def softmax_of_rounded_exponentials(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """``softmax`` in 16 bits writes exponentials in 16 bits, then divides them by their sum."""
    if x.dtype not in HALVES or not x.numel() or half:
        return op(x, dim, half)
    parts = torch.exp(x.float() - x.float().amax(dim, keepdim=True))
    return (parts.to(x.dtype).float() / parts.sum(dim, keepdim=True)).to(x.dtype)


@replacing("aten._log_softmax")
def log_softmax_of_a_rounded_sum(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """``log_softmax`` in 16 bits writes the logarithm of the sum of exponentials in 16 bits."""
    if x.dtype not in HALVES or not x.numel() or half:
        return op(x, dim, half)
    shifted = x.float() - x.float().amax(dim, keepdim=True)
    return (shifted - shifted.exp().sum(dim, keepdim=True).log().to(x.dtype).float()).to(x.dtype)


@replacing("aten.addmm", "aten.baddbmm")
def epilogue_of_a_rounded_product(
    op: Any, x: Tensor, a: Tensor, b: Tensor, *dtype: Any, beta: Any = 1, alpha: Any = 1
) -> Any:
    """Products of matrices in 16 bits are written in 16 bits, and so is what is added to them."""
    if dtype or a.dtype not in HALVES or x.dtype != a.dtype:
        return op(x, a, b, *dtype, beta=beta, alpha=alpha)
    product = torch.matmul(a, b) if alpha == 1 else torch.matmul(a, b) * alpha
    return product if beta == 0 else product + (x if beta == 1 else x * beta)


class RoundedSteps(TorchFunctionMode):
    """Rounds a random half of what operators compute in float32 to 16 bits, keeping the range of float32."""

    def __init__(self, dtype: torch.dtype, seed: int):
        super().__init__()
        self.dtype, self.random = dtype, random.Random(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return tree_map(func(*args, **(kwargs or {})), self.rounded)

    def rounded(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype != torch.float32 or self.random.random() < 0.5:
            return x
        near = x.to(self.dtype).float()
        return torch.where(near.isfinite(), near, x)


EXACT_TAGS = frozenset(
    {"random", "shape", "view", "sort", "data-dependent", "collective", "effect", "indexing", "creation"}
)
"""Tags of composites that round nothing, or whose results are not numbers that follow from their operands."""


def rounds_its_steps(member: Op | None) -> bool:
    """Whether a member is a composite that may round what it computes on the way."""
    return member is not None and member.kind == "composite" and not member.in_float32 and not member.tags & EXACT_TAGS


@compiled
def composites_in_steps_of_16_bits(gm: fx.GraphModule) -> Callable[..., Any]:
    """Composites in 16 bits go step by step, and every other step is rounded to 16 bits."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        like = run_eager(node, args, kwargs)
        dtype = next((x.dtype for x in tensor_leaves(list(args)) if x.dtype in HALVES), None)
        if dtype is None or not callable(node.target) or not rounds_its_steps(OPSET.get(node.target)):
            return like
        decompose = decomposition_of(node.target)
        assert decompose is not None
        with RoundedSteps(dtype, seed=0):
            result = decompose(*args, **kwargs)
        return like if result is NotImplemented else with_layout_of(result, like)

    return lambda *inputs: run(gm, inputs, do)
