"""Legal ways to compute attention and its gradients: orders, blocks of keys, weights, accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Way:
    """``order`` and ``block`` are of the keys. ``weights`` are rounded to 16 bits "never", "online" (before they are
    divided by their sum, against the maximum so far) or "divided"; with ``sum_of_rounded`` the sum is of the rounded
    ones. ``parts`` of the keys are computed by themselves and joined by their logsumexps. Sums are in ``accumulator``.
    """

    order: str = "forwards"
    block: int = 1024
    weights: str = "online"
    sum_of_rounded: bool = False
    parts: int = 1
    accumulator: torch.dtype = torch.float32
    delta: str = "out"


@dataclass(frozen=True)
class Setting:
    """The arguments of a call; ``bias`` is the mask as it is added to the scores, or None."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    bias: Tensor | None


def places(keys: int, way: Way) -> Tensor:
    """The keys in the order of the way."""
    order = torch.arange(keys)
    if way.order == "backwards":
        return order.flip(0)
    if way.order == "strided":
        return torch.cat([order[k::3] for k in range(3)])
    return order


def product(a: Tensor, b: Tensor, way: Way) -> Tensor:
    """A product of matrices, summed in the accumulator."""
    return (a.to(way.accumulator) @ b.to(way.accumulator)).float()


def scores(s: Setting, chosen: Tensor, way: Way) -> Tensor:
    result = product(s.q, s.k[..., chosen, :].mT, way) * s.scale
    return result if s.bias is None else result + s.bias.float()[..., chosen]


def attention(s: Setting, way: Way) -> tuple[Tensor, Tensor]:
    """The output and the logsumexp."""
    results = [_part(s, part, way) for part in places(s.k.shape[-2], way).chunk(way.parts)]
    total = torch.logsumexp(torch.stack([lse for _, lse in results]), 0)
    finite = torch.where(total == float("-inf"), 0.0, total)
    out = sum(o * (lse - finite).exp()[..., None] for o, lse in results)
    assert isinstance(out, Tensor)
    return out.to(s.q.dtype), finite


def _part(s: Setting, chosen: Tensor, way: Way) -> tuple[Tensor, Tensor]:
    """Online softmax over blocks of keys, as FlashAttention-2 has it."""
    dtype = s.v.dtype
    if way.weights == "divided":
        return _divided(s, chosen, way)
    rows = (*s.q.shape[:-1], 1)
    top, total, used, out = (
        torch.full(rows, float("-inf")),
        torch.zeros(rows),
        torch.zeros(rows),
        torch.zeros(*s.q.shape),
    )
    for block in chosen.split(way.block):
        these = scores(s, block, way)
        higher = torch.maximum(top, these.amax(-1, keepdim=True))
        base = torch.where(higher == float("-inf"), 0.0, higher)
        shrink, weights = (top - base).exp(), (these - base).exp()
        rounded = weights.to(dtype) if way.weights == "online" else weights
        total = total * shrink + weights.sum(-1, keepdim=True)
        used = used * shrink + (rounded.float() if way.sum_of_rounded else weights).sum(-1, keepdim=True)
        out, top = out * shrink + product(rounded, s.v[..., block, :], way), higher
    lse = torch.where(total == 0, float("-inf"), total.log() + top)
    return out / torch.where(used == 0, 1.0, used), lse[..., 0]


def _divided(s: Setting, chosen: Tensor, way: Way) -> tuple[Tensor, Tensor]:
    """The weights as a tensor of 16 bits, then their product with the values, a block after another."""
    these = scores(s, chosen, way)
    weights = torch.softmax(these, -1).nan_to_num(0.0).to(s.v.dtype)
    out = torch.zeros(*s.q.shape)
    for some, block in zip(weights.split(way.block, -1), chosen.split(way.block), strict=True):
        out = out + product(some, s.v[..., block, :], way)
    return out, torch.logsumexp(these, -1)


def gradients(grad: Tensor, out: Tensor, lse: Tensor, s: Setting, way: Way) -> Sequence[Tensor]:
    """The gradients of query, key and value, one block of keys after another."""
    chosen = places(s.k.shape[-2], way)
    dq, dk, dv = torch.zeros(*s.q.shape), torch.zeros(*s.k.shape), torch.zeros(*s.v.shape)
    narrow = s.q.dtype if way.weights != "never" else torch.float32
    blocks = [(b, (scores(s, b, way) - lse[..., None]).exp()) for b in chosen.split(way.block)]
    slopes = [product(grad, s.v[..., b, :].mT, way) for b, _ in blocks]
    delta = (grad.float() * out.float()).sum(-1, keepdim=True)
    if way.delta == "weights":
        delta = sum((w * g).sum(-1, keepdim=True) for (_, w), g in zip(blocks, slopes, strict=True))  # type: ignore[assignment]
    for (block, weights), slope in zip(blocks, slopes, strict=True):
        rounded = weights.to(narrow)
        used = rounded.float() if way.weights == "divided" else weights
        dscores = used * (slope - delta)
        dscores = dscores.to(narrow).float() * s.scale if way.order == "forwards" else (dscores * s.scale).to(narrow)
        dq = dq + product(dscores, s.k[..., block, :], way)
        dk[..., block, :] = product(dscores.mT, s.q, way)
        dv[..., block, :] = product(rounded.mT, grad, way)
    return dq.to(s.q.dtype), dk.to(s.k.dtype), dv.to(s.v.dtype)
