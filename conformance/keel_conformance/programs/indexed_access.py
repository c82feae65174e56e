"""Contract programs of what is read and written by slices and indices: in order, twice, from the end, with overlaps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter

graphs = Chapter("graphs")

Part = Callable[[Tensor, Tensor], None]


def written(x: Tensor, *parts: Part) -> tuple[Tensor, ...]:
    """Each part of a fresh copy of ``x`` is written, with the parts before; what that gives is read at the end."""
    results = []
    for k in range(1, len(parts) + 1):
        y = x.clone()
        for part in parts[:k]:
            part(y, x)
        results.append(y * 2)
    return tuple(results)


def _set(*place: slice | int) -> Part:
    def part(y: Tensor, x: Tensor) -> None:
        y[place] = x[place].flip(0) + len(place) + 1

    return part


def assigned(x: Tensor) -> tuple[Tensor, ...]:
    """Slices that meet, overlap or interleave are written one after another: the later one takes but its own."""

    def every(y: Tensor, x: Tensor) -> None:
        y[0::2], y[1::2] = x[1::2], x[0::2]

    def ends(y: Tensor, x: Tensor) -> None:
        y[:4], y[2:] = x[2:], x[:4] + 1

    def columns(y: Tensor, x: Tensor) -> None:
        y[:, 1:], y[:, :2], y[:, ::3] = 3, x[:, 4:], x[:, :2] - 1

    def added(y: Tensor, x: Tensor) -> None:
        y[1:] += x[:-1]
        y[:-1] -= y[1:].clone()
        y[2] *= 3

    def inside(y: Tensor, x: Tensor) -> None:
        y[2:5][1:] = x[:2]
        y.t()[1] = x[0]
        y[1:, 1:][::2, ::2] = -7

    def rows(y: Tensor, x: Tensor) -> None:
        y[0], y[-1] = y[-1].clone(), y[0].clone()
        y.diagonal()[1:] = 0
        y.select(1, 2).add_(y[:, 3])

    return (
        *written(x, every),
        *written(x, ends),
        *written(x, columns, inside),
        *written(x, added, rows),
        *written(x, _set(slice(0, 3)), _set(slice(1, 4)), _set(2), _set(slice(None), slice(0, 2)), _set(-1)),
        x[0:2] + 1,
    )


def placed(x: Tensor, i: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """The same by indices and masks, some of them counted from the end."""
    y, z, u = x.clone(), x.clone(), torch.zeros_like(x)
    y[i] = x[:4] + 1
    y[:, i] = y[:, :4] - 1
    z[c] = 0
    z[z > 2] = -1
    z[i, i] = 5
    u.index_put_((i, i.flip(0)), x[0, :4], accumulate=True)
    return (
        y,
        z,
        u,
        u + y.sum(0),
        x.index_fill(0, i % 6, 3),
        x.scatter(1, i[:, None] % 6, 7),
        x.scatter_add(0, i[None] % 6, x[:1, :4]),
        torch.where(c, x, y) + z,
        x.index_copy(1, i % 6, x[:, 2:]),
    )


def selected(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    """Rows of slices, of what is turned, of rows: counted from the end of what is left."""
    n = i - 3  # from -3 to 2
    return (
        x[2:][n],
        x[2:5][n] + 1,
        x[:3][n],
        x[n] * 2,
        x[1:][:, 2:][n] - 1,
        x[:, 2:][:, n],
        x.t()[n],
        x[n][:, n],
        x[n][n[:3]] + 1,
        x[:, None][n].squeeze(1),
        x[n, i],
        x[1:][n, i - 2],
        x.flip(0)[n],
        x[::2][n],
        x[-3:][n] * 2,
        x[:-1][n].sum(0),
        x[i].sum(0),
        x[i.flip(0)] - x[i],
        x.gather(0, i[None].expand(6, -1) % 6),
        x.take(n * 2),
        torch.take_along_dim(x, i[None] % 6, 1),
        x.index_select(0, i)[1:],
        F.embedding(i, x) + x[:4],
        F.embedding(i[None], x).sum(1),
        F.one_hot(i, 6).to(x.dtype) @ x,
        (i[:, None] == torch.arange(6, device=x.device)).to(x.dtype) @ x,
        x[i, None] - x[None, i],
    )


def ranked(x: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Heads and tails of what is sorted, up or down; ranks, runs and what comes first, of numbers that all differ."""
    up, order = x.sort(1)
    down, back = x.sort(0, descending=True)
    return (
        up[:, :2] + 1,
        up[:, -2:] * 2,
        order[:, :2],
        order[:, -1],
        down[:2] - 1,
        down[3:],
        back[:1] + 1,
        up[:, 1],
        x.topk(2, 1).values + 1,
        x.topk(2, 1, largest=False).values,
        x.topk(3, 0).indices,
        x.topk(1).values[:, 0],
        x.argsort(1).argsort(1),
        x.argsort(1, descending=True)[:, :3],
        x.kthvalue(2, 1).values,
        x.median(1).values * 2,
        x.amax(1) - x.amin(1),
        x.max(0).indices,
        x.min(1).indices,
        x.argmax(),
        up.flip(1)[:, :2],
        x.sort(1, descending=True).values[:, :2] * -1,
        (-x).sort(1).values[:, :2],
        torch.gather(x, 1, order)[:, 2:4],
        x.cummax(1).values,
        x.cummin(0).indices,
        x.flip(1).argmax(1),
        torch.searchsorted(up[0], x[1]),
        torch.bucketize(x, up[0, 1:4].contiguous(), right=True),
        (x[:, :, None] > x[:, None]).sum(-1),
        k.cumsum(0) - k,
        torch.searchsorted(k.cumsum(0), torch.arange(9, device=k.device), right=True),
        k.flip(0).cumsum(0).flip(0),
        torch.arange(4, device=k.device) < k[:, None],
        k.diff(),
        torch.repeat_interleave(x, 2, 1)[:, 1:5],
    )


def dealt(x: Tensor) -> tuple[Tensor, ...]:
    """Pieces that come back in order, or nearly: all or some, along the dimension of the cut or another."""
    a, b, c = x.chunk(3)
    d, e, f = x.split(2, 1)
    g, h = x.split([2, 4])
    u = x.unbind(1)
    return (
        torch.cat([a, b, c]) + 1,
        torch.cat([c, b, a]),
        torch.cat([a, c, b]) * 2,
        torch.cat([a, b]),
        torch.cat([a, b, c], 1),
        torch.cat([d, e, f], 1),
        torch.cat([d, f, e], 1),
        torch.cat([d, e, f]),
        torch.cat([h, g]),
        torch.cat([a, b, b]),
        torch.cat([h[:2], g, h[2:]]),
        torch.stack(u, 1),
        torch.stack(u),
        torch.stack(u[::-1], 1),
        torch.stack([u[1], u[0], *u[2:]], 1) - 1,
        torch.cat([x[:2], x[2:]]),
        torch.cat([x[2:], x[:2]]),
        torch.cat([x[:4], x[2:]]),
        torch.cat([x[::2], x[1::2]]),
        torch.stack([x[::2], x[1::2]], 1).flatten(0, 1),
        torch.cat([x, x])[3:9],
        torch.stack([a, b, c]).flatten(0, 1) * 2,
        torch.stack([a, b, c], 1).flatten(0, 1),
        torch.cat([a + 1, b + 1, c + 1]),
        torch.cat([a.relu(), b, c.neg()]),
        a * c - b,
        d @ a,
        x.tile(2)[:, 3:9],
        torch.cat([-x[:, 3:], x[:, :3]], 1),
        x.repeat(2, 1)[5:8],
        x.reshape(3, 2, 6).flip(1).reshape(6, 6),
    )


def strided(x: Tensor) -> tuple[Tensor, ...]:
    """Views with other sizes and strides. They begin where the tensor begins, which may be inside its storage."""
    return (
        x.as_strided((2, 3), (3, 2)) + 1,
        x[1:].as_strided((2, 2), (1, 2)) * 2,
        x[2:].t().as_strided((3,), (2,)),
        (x * 2)[1:].as_strided((3, 3), (6, 1)),
        torch.as_strided_scatter(x[1:], x[0, :4], (4,), (3,)),
        x[:, 2:].as_strided((4, 2), (6, 1)).sum(0),
    )


def kept_alive(x: Tensor) -> tuple[Tensor, ...]:
    """Views of an intermediate that is read no more itself, by which its memory lives on."""
    y, z, w = x - 1, x * 3, x + 4
    first, turned, part = y[0], z.t(), w[:, 1:4]
    a, b, c = y.relu(), z.neg(), w * w
    last = (x * 2).flip(0)
    odd = last[::2]
    d = last.abs() - a
    e = (d + 1)[1]
    f = d.clamp(max=2)
    return (
        first * 2,
        a,
        turned + 1,
        b,
        part - 1,
        c,
        odd * 2,
        d + 1,
        e * e,
        f,
        (a + b).t()[2:] * 2,
        (c - d).sum(0) - first,
    )


def chains_in_place(x: Tensor) -> tuple[Tensor, ...]:
    """What is written in place of something that others have read, or share."""
    y = x + 1
    before = y * 2
    y.mul_(3)
    between = y - 1
    z = y.clone()
    z.add_(5).relu_()
    w = y.view(-1)
    w[:7] = 0
    u = x.clone()
    v = u.t()
    u.sub_(2)
    r = torch.empty_like(x).copy_(x).neg_()
    s = x.detach().clone().clamp_(-1, 1)
    return (
        x.clone(),
        before,
        between,
        y,
        z,
        w[5:9],
        v * 1,
        u + v,
        r,
        s,
        x * 1,
        y + z.zero_(),
        torch.zeros_like(x).add_(x, alpha=2),
    )


def six(ctx: Context) -> Tensor:
    return ctx.ints(6, 6)


graphs.function("slices-that-are-assigned", ["C1"], assigned, lambda ctx: [six(ctx)], smoke=True)
graphs.function(
    "places-that-are-assigned",
    ["C1"],
    placed,
    lambda ctx: [six(ctx), ctx.to_device(torch.tensor([1, -1, 3, -4])), ctx.bools(6, 6)],
    smoke=True,
)
graphs.function(
    "indices-of-slices", ["C1"], selected, lambda ctx: [six(ctx), ctx.to_device(ctx.permutation(6)[:4])], smoke=True
)
graphs.function(
    "ranks", ["C1"], ranked, lambda ctx: [ctx.permutation(30).view(5, 6).to(ctx.dtype), ctx.indices(4, 7)], smoke=True
)
graphs.function("pieces-dealt", ["C1"], dealt, lambda ctx: [six(ctx)], smoke=True)
graphs.function("memory-with-other-strides", ["C1"], strided, lambda ctx: [six(ctx)])
graphs.function("views-that-outlive", ["C1"], kept_alive, lambda ctx: [six(ctx)], smoke=True)
graphs.function("chains-in-place", ["C1"], chains_in_place, lambda ctx: [six(ctx)], smoke=True)
