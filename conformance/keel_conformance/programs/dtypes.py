"""Contract programs of dtypes, numbers and sizes within a graph: casts that cannot move, constants that keep their
digits, 0-d tensors that do not promote, 8 bits that saturate, operands that repeat, nothing at all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .program import Chapter, bound
from .rewrites import fractions

graphs = Chapter("graphs")


def widened(x: Tensor) -> tuple[Tensor, ...]:
    """Halves that are widened and then folded, or not; differences that are narrowed, or of what is narrowed."""
    h, b = (x * 512).half(), (x * 8).round().bfloat16()
    wide, s = h.float(), x.char()
    return (
        wide.sum(1),
        wide.sum(),
        h.float().amax(0),
        b.float().sum(0),
        b.double().cumsum(1),
        (wide * 4).sum(0),
        (wide - wide.flip(0)).half(),
        h - h.flip(0),
        (x + 4096 - x.flip(0)).half(),
        (x + 4096).half() - x.flip(0).half(),
        (x * 2**9 + 2**12).bfloat16() * 2,
        (h * 2).float(),
        h.float() * 2,
        (wide * wide).half().float(),
        (h * h).float(),
        s.sum(1),
        s.sum(0, dtype=torch.int32),
        s.float().sum(),
        s.long().prod(0),
        s.int() * s.int(),
        s * s,
        (s * 2).long(),
        s.long() * 2,
        (s > 3).sum(1),
        (s > 3).float().mean(0) * 8,
        s.to(torch.uint8).long().sum(),
        s.cumsum(0),
        s.float() / 2,
        s / 2,
        s // 2 * 2,
        h.double().sum(0).half(),
        (x > 0).int().cumsum(1),
        b.float().mean(0).bfloat16(),
        x.bool().sum(),
    )


def promoted(x: Tensor, s: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """0-d tensors and numbers among tensors of some dimensions, in the middle of chains."""
    h, b, i, j = x.half(), x.bfloat16(), x.int(), x.to(torch.int8)
    one = torch.ones((), dtype=torch.float64, device=x.device)
    return (
        h + s,
        (h * 2 + s).relu(),
        (b - s) * 2,
        s * b.neg(),
        h.relu() * s + h,
        (i + n) * 2,
        i * 2 + s,
        (j - n) * 2,
        j.neg() * n,
        x * n + 1,
        (x.neg() + one) * 2,
        torch.where(x > 0, h, s),
        torch.where(x > 0, i, n),
        h.clamp(max=1) * s - n,
        torch.maximum(h, s.half()),
        i / 2,
        i * 0.5,
        j + 300,
        i // 2 + 0.5,
        j > 2.5,
        (h + 1).eq(s),
        x.long() * 2.5,
        torch.cat([i, j]),
        torch.stack([h, b]),
        i.bool() + 1,
        (i > 0) * s,
        (i > 0) + n,
        (x > 0) & (i < n),
        i.to(h.dtype) + s * s,
        torch.add(h, s, alpha=2),
        (s + n) * h,
        n / 4 + b,
        h.pow(n),
        i**2,
    )


def constant(x: Tensor) -> tuple[Tensor, ...]:
    """What follows from nothing that is given, in 64 bits; 1, 1.0 and True side by side."""

    def full(value: float | bool, dtype: torch.dtype | None = None, n: int = 3) -> Tensor:
        return torch.full((n,), value, dtype=dtype, device=x.device)

    big = torch.tensor([2**60 + 1, 2**53 + 1, -(2**40) - 3], device=x.device)
    fine = torch.tensor([1 + 2.0**-40, 2.0**70, 1.0 / 3], dtype=torch.float64, device=x.device)
    steps = torch.arange(3, device=x.device) * (2**32 + 1)
    return (
        big + 1,
        big * 3 // 3,
        big % 1000 + x.long(),
        fine * 3,
        fine - 1,
        (fine * fine).float() + x,
        steps + x.long(),
        (steps.double() / 3).long(),
        torch.linspace(0, 1, 3, dtype=torch.float64, device=x.device) * 3,
        full(1),
        full(1.0),
        full(True),
        full(1) + x,
        full(1.0) * full(1),
        full(True) & (x > 0),
        full(1, torch.float64) / 3,
        full(2**31),
        full(2**31 + 1) - full(2**31),
        full(0.1, torch.float64) + x.double(),
        x.double() * 0.1,
        x == 1,
        x.eq(True),
        (x > 0) == 1,
        x.long() + True,
        x.long() + 1,
        x + 1,
        x * 1.0,
        x.long() * 1.0,
        torch.arange(0, 1, 0.25, dtype=x.dtype, device=x.device),
        torch.eye(3, dtype=torch.int64, device=x.device) * big,
        torch.ones(3, dtype=torch.int64, device=x.device).cumsum(0) << 40,
        torch.zeros(3, device=x.device).long() - big,
    )


def quantized(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """To 8 bits and back, with numbers that saturate and ties; fake quantization; products of bytes."""

    def to(y: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
        return y.round().clamp(low, high).to(dtype)

    q, u = to(x * 4, -128, 127, torch.int8), to(x * 4 + 100, 0, 255, torch.uint8)
    rows = to(x / scale[:, None], -127, 127, torch.int8)
    zero = torch.arange(6, dtype=torch.int32, device=x.device)
    return (
        q.to(x.dtype) * 0.25,
        (u.to(x.dtype) - 100) * 0.25,
        q,
        u,
        u.int() - 100,
        rows.to(x.dtype) * scale[:, None],
        to(x / scale, -8, 7, torch.int8).to(x.dtype) * scale,
        (x * 4).clamp(-128, 127).to(torch.int8).to(x.dtype),
        (x * 4).clamp(-128, 127).round() / 4,
        (x * 4 + 0.5).floor() / 4,
        torch.fake_quantize_per_tensor_affine(x, 0.25, 3, -128, 127),
        torch.fake_quantize_per_tensor_affine(x, 0.5, 0, 0, 255),
        torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -128, 127),
        (q.int()[:, :, None] * q.int()[None]).sum(1),
        (q.to(x.dtype) @ rows.to(x.dtype).t()) / 4,
        q.int() * rows.int(),
        q + rows,
        q.to(torch.int16) + rows,
        u // 2 + u,
        (q.to(x.dtype) - q.to(x.dtype).amax(0)).clamp(min=-100),
        to(x * 4, -128, 127, torch.int32) >> 1,
        q >> 1,
        u >> 1,
    )


def repeated(x: Tensor, row: Tensor, rest: Tensor, mid: Tensor) -> tuple[Tensor, ...]:
    """Operands of one element along the first, a middle or the last dimension, in chains and in front of folds."""
    y = x.neg()  # (2, 3, 4, 5)
    return (
        x * 2 + mid,
        (x + 1) * mid,
        mid.abs() - x.relu(),
        (x - row).relu() * mid,
        (x * rest).neg() + row[0],
        x.abs() + rest,
        y + row,
        (y * rest).relu(),
        y - mid,
        (y + mid) * rest - row,
        (y * row).sum((0, 3)),
        (y - rest).amax(1),
        y + row[0, 0, 0],
        y + mid[:, :1],
        mid + rest,
        (mid * rest).neg() + row,
        (row - y).sum(2),
        torch.where(mid > 0, y, rest),
        y.clamp(min=row),
        torch.minimum(mid, rest).relu() + y,
        (mid + y.sum(2, True)).abs(),
        y.mT @ (y * rest),
        (y == mid).sum(-1),
        y.masked_fill(rest > 0, -2),
        (y + mid).flip(3) - rest,
        y.select(2, 1) + mid[:, :, 0],
        y[:1] + mid,
        x[:, 1] * rest[:, 0],
        torch.cat([y, mid.expand_as(y)], 2) * 2,
        row.expand_as(y).sum(1) + y[:, 0],
        mid.expand_as(y).contiguous().sum(0),
        (row + mid).sum(-1),
        rest.expand(2, 3, 4, 5).cumsum(2),
        (rest.relu() - mid.neg()) * (mid + row),
        torch.addcmul(y, mid, rest, value=2),
        y.lerp(mid.expand_as(y), 0.5),
    )


def independent_sizes(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Like work of several sizes that nothing connects, in both orders."""
    return (
        a.relu(),
        b.relu(),
        c.relu(),
        c.neg(),
        a.neg(),
        b * 2,
        a * 2,
        a.sum(0),
        b.sum(0),
        c.sum(0),
        b.amax(1),
        a.amax(1),
        a.abs().t(),
        c.abs(),
        (b + 1).t(),
        (a + 1)[:, 0],
        c.cumsum(0),
        a.cumsum(0),
        b.reshape(-1)[3:] * 2,
        a > 0,
        c > 0,
        b.square().mean() * 0 + c[0],
        a[:3].neg(),
        b[:, :2].neg(),
        c[5:].neg(),
        torch.cat([a.reshape(-1), c, b.reshape(-1)]),
    )


def nothing(x: Tensor, none: Tensor) -> tuple[Tensor, ...]:
    """Folds and products of no elements, beside some."""
    flat = x[:, 3:3]
    return (
        none.sum(0),
        none.prod(0),
        none.mean(0),
        none.all(0),
        none.any(0),
        none.mean(),
        none.prod(),
        none.all(),
        none.logsumexp(0),
        none.cumsum(0),
        flat.sum(1),
        flat.prod(1) + x[:, 0],
        flat @ flat.t(),
        none.t() @ none,
        torch.cat([none, x]) * 2,
        torch.cat([flat, x, flat], 1),
        none.sum(0) + x,
        (x > 99)[:0].sum(),
        flat.norm(),
        none.sort(0).values,
        torch.addmm(x[:, :1], flat, flat.t()[:, :1]),
        none.to(torch.int8).sum(),
        x.where(x > 99, 0).sum(),
        none.relu().reshape(-1, 5),
        x.new_zeros(0).sum() + x,
        none.count_nonzero(),
        none.reshape(5, 0).amax(0),
        none.median(1).values,
        torch.nn.functional.pad(none, (0, 0, 1, 0), value=4),
        x.index_select(0, x[:0, 0].long()),
    )


for _name, _dtype in (("", None), ("-of-float64", torch.float64)):
    graphs.function(
        f"operands-that-repeat{_name}",
        ["C1"],
        repeated,
        bound(
            lambda ctx, d: [
                ctx.ints(2, 3, 4, 5, dtype=d),
                ctx.ints(1, 1, 1, 5, dtype=d),
                ctx.ints(1, 3, 1, 5, dtype=d),
                ctx.ints(2, 3, 1, 5, dtype=d),
            ],
            _dtype,
        ),
        smoke=not _name,
    )
graphs.function("casts-and-folds", ["C1", "dtypes.C2"], widened, lambda ctx: [fractions(ctx, 8, 9)], smoke=True)
graphs.function(
    "promotions-in-chains",
    ["C1", "dtypes.C2", "scalars.C1"],
    promoted,
    lambda ctx: [ctx.ints(5, 7), ctx.to_device(torch.tensor(0.5)), ctx.to_device(torch.tensor(3))],
    smoke=True,
)
graphs.function("constants-of-64-bits", ["C1", "dtypes.C3"], constant, lambda ctx: [ctx.ints(3)], smoke=True)
graphs.function(
    "bytes-and-back",
    ["C1"],
    quantized,
    lambda ctx: [
        ctx.ints(6, 6, low=-700, high=700) / 8,
        torch.tensor([1, 0.5, 2, 4, 0.25, 8]).to(ctx.device, ctx.dtype),
    ],
    smoke=True,
)
graphs.function(
    "like-work-of-several-sizes",
    ["C1"],
    independent_sizes,
    lambda ctx: [ctx.ints(7, 5), ctx.ints(3, 4), ctx.ints(17)],
    smoke=True,
)
graphs.function("folds-of-nothing", ["C1"], nothing, lambda ctx: [ctx.ints(4, 5), ctx.ints(0, 5)], smoke=True)
