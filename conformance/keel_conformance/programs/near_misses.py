"""Contract programs of what looks like something else: formulas that compilers know, with one thing changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter
from .rewrites import special

graphs = Chapter("graphs")


def far(ctx: Context, *shape: int) -> Tensor:
    """-1000, 0 and 1000: their exponentials and sigmoids round nothing."""
    return 1000.0 * (ctx.indices(3, *shape) - 1).to(ctx.dtype)


def large_integers(ctx: Context, *shape: int) -> Tensor:
    return ctx.indices(1 << 20, *shape) - (1 << 19)


def complexes(ctx: Context, *shape: int) -> Tensor:
    return torch.complex(ctx.ints(*shape, dtype=torch.float32), ctx.ints(*shape, dtype=torch.float32))


# -- formulas that have a name -----------------------------------------------------------------------------------------


def shares(x: Tensor) -> tuple[Tensor, ...]:
    """Exponentials over sums that are, and are not, those of a softmax along the last dimension."""
    e = x.clamp(max=0).exp()
    return (*(e / e.sum(d, keepdim=True) > 0.3 for d in (0, 1, 2, (0, 2))), e / e.sum() > 0.001, e.sum(1))


graphs.function(
    "gates",
    ["C1"],
    lambda x, y: (
        x * y.sigmoid(),
        y.sigmoid() * x + 1,
        (x + y) * y.sigmoid(),
        x * (x * 1000).sigmoid(),
        x * (1 - y.sigmoid()),
    ),
    lambda ctx: [ctx.ints(5, 9), far(ctx, 5, 9)],
    smoke=True,
)
graphs.function("shares", ["C1"], shares, lambda ctx: [far(ctx, 3, 4, 40)])
graphs.function(
    "exponentials",
    ["C1"],
    lambda x: (
        (x.abs() * 100 + 100).exp() * (-80 - x * 0).exp(),
        (x.abs() + 100).exp() / (x * x + 100).exp(),
        (x * 0).exp() * (x * 0).exp(),
    ),
    lambda ctx: [ctx.ints(5, 9)],
)
graphs.function(
    "sums-over-numbers",
    ["C1"],
    lambda x: (x.sum(1) / 4, x.sum(0) * 0.25, x.sum() / 2, (x.sum(1) / 8).sum(), (x * 2).sum(0) / 16, x.mean(0) * 8),
    lambda ctx: [ctx.ints(8, 6)],
)
graphs.function(
    "remainders",
    ["C1", "dtypes.C3"],
    lambda x: (
        (x % 7) % 3,
        (x % 3) % 7,
        (x % 12) % 4,
        torch.fmod(torch.fmod(x, 7), 4),
        x // 5 // 3,
        x // 5 * 5 + x % 5,
        (x * 6) % 4,
    ),
    lambda ctx: [large_integers(ctx, 5, 9)],
)
graphs.function(
    "sums-and-multiples",
    ["C1"],
    lambda a, b, c: (
        torch.add(a @ b, c, alpha=3),
        torch.sub(c, a @ b, alpha=2),
        torch.addmm(c, a, b, beta=2, alpha=3),
        torch.add(c, a @ b, alpha=-1),
        (a @ b) * 2 + c * 3,
    ),
    lambda ctx: [ctx.ints(5, 7), ctx.ints(7, 4), ctx.ints(5, 4)],
)
graphs.function(
    "magnitudes",
    ["C1"],
    lambda x: (
        x.abs().relu(),
        (x * x).clamp(min=0),
        x.abs().clamp(min=0),
        torch.maximum(x.abs(), x * 0),
        x.square().relu(),
        x.abs().abs(),
        (-x.abs()).relu(),
    ),
    lambda ctx: [special(ctx, 6, 9)],
)
graphs.function(
    "magnitudes-of-integers",
    ["C1", "dtypes.C3"],
    lambda x: (x.abs().clamp(min=0), (x * x).relu(), x.abs().abs(), (x * x).abs(), x.neg().abs().clamp(min=0)),
    lambda ctx: [torch.where(ctx.indices(3, 6, 9) == 0, torch.iinfo(torch.int32).min, large_integers(ctx, 6, 9)).int()],
)


def _ranges(x: Tensor) -> tuple[Tensor, ...]:
    def numbers(n: int = x.shape[0]) -> Tensor:
        return torch.arange(n, device=x.device)

    return (
        numbers() * 3_000_000_000 + x,
        numbers() + (1 << 40),
        numbers(9) * (1 << 33),
        (numbers() * (1 << 32)).sum() + x,
    )


graphs.function("ranges-times-numbers", ["C1", "dtypes.C3"], _ranges, lambda ctx: [large_integers(ctx, 17)])


# -- moves that are nearly none ----------------------------------------------------------------------------------------


def pieces(x: Tensor) -> tuple[Tensor, ...]:
    a, b, c = x.split(2)
    return (
        torch.cat([c, a, b]) + 1,
        torch.cat([a, b, c], 1) * 2,
        torch.cat(x.chunk(3)[::-1]) - 1,
        torch.stack(x.unbind(0)[::-1]) + 0.5,
        torch.cat([a, b, c]) * 3,
        torch.cat([a, c]) + 1,
        torch.stack(x.unbind(1)) * 2,
    )


def window(past: Tensor, new: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """A cache that the last tokens are joined to, and of which a window is kept that begins in the past."""
    keys, joined_mask = torch.cat([past, new], 1), torch.cat([mask, mask[:, :3]], 1)
    retained = keys[:, 3:7]
    return (
        retained,
        retained * 2 + 1,
        (new @ retained.transpose(1, 2)).amax(-1),
        keys[:, -5:].sum(1),
        joined_mask[:, 2:6] + 1,
        keys[:, 1:],
    )


def residual(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """What is added to a product is read afterwards."""
    r = c * 2
    result = a @ b + r
    return result.relu(), r + 1, (r - result).sum(0), torch.addmm(r, a, b), r.amax(1)


graphs.function("pieces-in-another-order", ["C1"], pieces, lambda ctx: [ctx.ints(6, 6)])
graphs.function(
    "batches-that-are-turned",
    ["C1"],
    lambda a, b: (
        a.permute(2, 0, 1) @ b,
        a.permute(1, 0, 2) @ b,
        torch.bmm(a.permute(2, 1, 0), b),
        a.permute(1, 2, 0) @ b[0],
        a @ b.permute(1, 0, 2),
        a @ b.permute(2, 0, 1),
    ),
    lambda ctx: [ctx.ints(4, 4, 4), ctx.ints(4, 4, 4)],
)
graphs.function(
    "a-window-of-what-is-joined", ["C1"], window, lambda ctx: [ctx.ints(2, 6, 4), ctx.ints(2, 2, 4), ctx.ints(2, 6)]
)
graphs.function("residuals", ["C1"], residual, lambda ctx: [ctx.ints(5, 7), ctx.ints(7, 4), ctx.ints(5, 4)])
graphs.function(
    "conjugates",
    ["C1"],
    lambda a, b: (
        a * b.conj(),
        (a.conj() * b).real,
        a.conj().imag + b.real,
        (a.conj() + 1) * b,
        torch.view_as_real(b.conj() * 2),
        (a @ b.conj().t()).conj(),
        a.conj().sum(0),
    ),
    lambda ctx: [complexes(ctx, 3, 4), complexes(ctx, 3, 4)],
)


def normed(ctx: Context) -> list[Any]:
    return [ctx.ints(2, 3, 6, 5), ctx.ints(4, 3, 3, 3, low=-2, high=3), *(ctx.ints(4) for _ in range(4))]


graphs.function(
    "norms-after-convolutions",
    ["C1"],
    lambda x, w, bias, mean, scale, shift: (
        F.batch_norm(
            F.conv2d(x, w, bias, padding=1), mean, torch.full((4,), 3.5, dtype=x.dtype), scale, shift, False, 0.1, 0.5
        ),
        F.batch_norm(F.conv2d(x, w, bias), mean, torch.full((4,), 0.125, dtype=x.dtype), None, None, False, 0.1, 0.125),
    ),
    normed,
)
