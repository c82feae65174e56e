"""Contract programs of attention as models write it out, in the ways that compilers take for one another."""

from __future__ import annotations

import torch
from torch import Tensor

from .program import Chapter

graphs = Chapter("graphs")


def scaled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Scores that are scaled by other numbers, at other places, along other dimensions."""

    def attend(scores: Tensor) -> Tensor:
        return scores.softmax(-1) @ v

    s, d = iter([(q + n / 8) @ k.mT for n in range(12)]), q.shape[-1]  # each read but once
    return (
        attend(next(s) / d**0.5),
        attend(next(s) * 0.25),
        attend(next(s)),
        attend(next(s) / d),
        attend((q * 0.5) @ k.mT),
        attend((next(s) / 8).tanh() * 8),
        attend(next(s) * d**-0.5 + 1),
        (next(s) * 0.25).softmax(-2) @ v,
        attend(-next(s) / 2),
        (next(s) / 2).softmax(-1).mT @ q,
        (next(s) / 2).softmax(-1) * 2 @ v,
        attend(next(s) / 2) / 2,
        attend(next(s) / 2) + v.sum(-2, True),
    )


def masked(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """More keys than queries, seen from the first one or the last one on, in windows, without what fills up."""
    s = q @ k.mT * 0.25
    rows, columns = torch.arange(5, device=q.device)[:, None], torch.arange(7, device=q.device)
    ones, lowest = torch.ones(5, 7, dtype=torch.bool, device=q.device), float("-inf")
    hidden = torch.triu(torch.full((5, 7), lowest, dtype=q.dtype, device=q.device), 3)

    def attend(scores: Tensor) -> Tensor:
        return scores.softmax(-1) @ v

    return (
        attend(s.masked_fill(~ones.tril(), lowest)),
        attend(s.masked_fill(~ones.tril(2), lowest)),
        attend(s.masked_fill(ones.triu(3), lowest)),
        attend(s + hidden),
        attend(torch.where(rows >= columns, s, -1e9)),
        attend(torch.where(rows + 2 >= columns, s, -1e9)),
        attend(s.masked_fill(columns < 5, lowest)),
        attend(s.masked_fill((columns > 3) & (columns > rows), lowest)),
        attend(s.masked_fill((columns > rows + 2) | (columns < rows), lowest)),
        attend(s - (rows - columns).abs()),
        s.softmax(-1).masked_fill(~ones.tril(), 0) @ v,
        s.masked_fill(columns < 2, lowest).logsumexp(-1),
    )


def grouped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Six heads of queries share two of keys: each is repeated in a row, or all are in turns."""

    def attend(k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / 3).softmax(-1) @ v

    b, h, n, d = k.shape
    rows = [x[:, :, None].expand(b, h, 3, n, d).reshape(b, 3 * h, n, d) for x in (k, v)]
    turns = [x[:, None].expand(b, 3, h, n, d).reshape(b, 3 * h, n, d) for x in (k, v)]
    by_groups = (q.reshape(b, h, 3, -1, d) @ k[:, :, None].mT / 3).softmax(-1) @ v[:, :, None]
    return (
        attend(*rows),
        attend(*turns),
        attend(k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)),
        attend(k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1)),
        by_groups.reshape(q.shape),
        attend(k[:, :1], v[:, 1:]),
        rows[0] * 2,
        turns[0] * 2,
    )


def headed(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """One product for queries, keys and values, cut along the heads in each of the ways that models cut it."""
    b, n, d = x.shape

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)

    y = x @ w
    return (
        attend(*y.view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)),
        attend(*(z.view(b, n, 2, d // 2).transpose(1, 2) for z in y.chunk(3, -1))),
        attend(*(z.transpose(1, 2) for z in y.view(b, n, 2, 3, d // 2).unbind(3))),
        attend(*y.view(b, n, 2, -1).transpose(1, 2).split(d // 2, -1)),
        y.view(b, n, 2, -1).transpose(1, 2) + 1,
    )


def turning(x: Tensor) -> tuple[Tensor, ...]:
    """Rotary positions: halves or adjacent elements are turned, from the first position or a later one on."""
    n = x.shape[-2]

    def angles(start: int) -> Tensor:
        speed = torch.tensor([1.0, 0.25, 0.0625, 0.5], dtype=x.dtype, device=x.device)
        return torch.arange(start, start + n, dtype=x.dtype, device=x.device)[:, None] * speed

    def halves(a: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * a.cos().repeat(1, 2) + torch.cat([-second, first], -1) * a.sin().repeat(1, 2)

    def neighbors(a: Tensor) -> Tensor:
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * a.cos() - odd * a.sin(), odd * a.cos() + even * a.sin()], -1).flatten(-2)

    return halves(angles(0)), halves(angles(3)), neighbors(angles(0)), neighbors(angles(3)), halves(-angles(0))


graphs.function(
    "attention-and-its-scales",
    ["C1"],
    scaled,
    lambda ctx: [ctx.normal(2, 2, 5, 8), ctx.normal(2, 2, 7, 8), ctx.normal(2, 2, 7, 8)],
    exact=False,
    smoke=True,
)
graphs.function(
    "attention-and-its-masks",
    ["C1"],
    masked,
    lambda ctx: [ctx.normal(2, 5, 8), ctx.normal(2, 7, 8), ctx.normal(2, 7, 8)],
    exact=False,
    smoke=True,
)
graphs.function(
    "attention-of-groups-of-heads",
    ["C1"],
    grouped,
    lambda ctx: [ctx.normal(2, 6, 5, 4), ctx.normal(2, 2, 7, 4), ctx.normal(2, 2, 7, 4)],
    exact=False,
    smoke=True,
)
graphs.function(
    "attention-of-one-product", ["C1"], headed, lambda ctx: [ctx.normal(2, 5, 8), ctx.normal(8, 24)], exact=False
)
graphs.function("positions-that-turn", ["C1"], turning, lambda ctx: [ctx.normal(2, 3, 6, 8)], exact=False)
