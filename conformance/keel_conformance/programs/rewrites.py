"""Contract programs about what compilers rewrite: what folds for most values, casts, moves of moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter, bound

graphs = Chapter("graphs")
NAN, INF = float("nan"), float("inf")


def special(ctx: Context, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Small integers, and among them NaN, infinities and zeros of both signs."""
    few = torch.tensor([NAN, INF, -INF, 0.0, -0.0], dtype=torch.float64).to(dtype or ctx.dtype)
    x = ctx.ints(*shape, dtype=dtype or ctx.dtype)
    return torch.where(ctx.indices(3, *shape) == 0, few[ctx.indices(len(few), *shape)], x)


def in_turns(ctx: Context, programs: Sequence[Callable[..., Any]], *shape: int) -> None:
    """Each on the same argument, with every call's another."""
    for _ in ctx.rounds():
        x = ctx.ints(*shape)
        for go in programs:
            ctx.run(go, x)


# -- what folds for most values ----------------------------------------------------------------------------------------


def folded(x: Tensor) -> tuple[Tensor, ...]:
    return x * 0, x - x, x / x, x == x, x != x, x + 0, x * 1, x <= x, torch.maximum(x, x), x.isnan()


def folded_within(x: Tensor) -> tuple[Tensor, ...]:
    """The same, with other operators before and after."""
    y = x + 1
    return (
        y * 0 + 2,
        (y - y).amax(0),
        torch.where(y == y, y, 3),
        (y / y).amin(1),
        (y != y).sum(0),
        -(y * 0) + 1,
        torch.where(y != y, 7, 2),
    )


def chosen(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Choices that NaN makes otherwise than a test of its opposite."""
    return (
        torch.where(x > 0, x, -x),
        torch.where(x <= 0, -x, x),
        ~(x > y),
        x <= y,
        torch.maximum(x, y),
        torch.where(x > y, x, y),
        torch.minimum(x, y),
        x.clamp(-1, 2),
        x.relu(),
        torch.where(x > 0, x, 0),
        x.abs(),
    )


for _name, _dtype in (("", None), ("-of-float64", torch.float64), ("-of-bfloat16", torch.bfloat16)):
    graphs.function(
        f"folded{_name}", ["C1"], folded, bound(lambda ctx, d: [special(ctx, 9, 7, dtype=d)], _dtype), smoke=not _name
    )
    graphs.function(
        f"folded-within{_name}", ["C1"], folded_within, bound(lambda ctx, d: [special(ctx, 6, 17, dtype=d)], _dtype)
    )
    graphs.function(
        f"chosen{_name}",
        ["C1"],
        chosen,
        bound(lambda ctx, d: [special(ctx, 5, 9, dtype=d), special(ctx, 5, 9, dtype=d)], _dtype),
    )
graphs.function(
    "folded-integers",
    ["C1", "dtypes.C3"],
    lambda x: (
        x * 0,
        x - x,
        x // 1,
        x % 1,
        x & x,
        x | 0,
        x ^ x,
        x << 0,
        (~x) ^ -1,
        (-x).neg(),
        x * 4 // 4,
        x * 2 // 4,
        (x + 1) * 2 - 2,
    ),
    lambda ctx: [ctx.indices(1 << 62, 5, 7) - (1 << 61)],
)


# -- casts -------------------------------------------------------------------------------------------------------------


def there_and_back(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        x.to(d).to(x.dtype) for d in (torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int8, torch.bool)
    )


def whole_there_and_back(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        x.to(d).to(x.dtype) for d in (torch.int32, torch.int16, torch.uint8, torch.float32, torch.float64, torch.bool)
    )


def fractions(ctx: Context, *shape: int) -> Tensor:
    """Numbers from -60 to 60 with more digits than 16-bit floats have."""
    return ctx.ints(*shape, low=-60 * 4096, high=60 * 4096) / 4096


graphs.function(
    "casts-there-and-back", ["C1", "dtypes.C2"], there_and_back, lambda ctx: [fractions(ctx, 5, 9)], smoke=True
)
graphs.function(
    "casts-of-integers-there-and-back",
    ["C1", "dtypes.C3"],
    whole_there_and_back,
    lambda ctx: [ctx.indices(1 << 40, 5, 9) - (1 << 39)],
)
graphs.function(
    "casts-there-and-back-of-special-values",
    ["C1"],
    lambda x: tuple(x.to(d).to(x.dtype) + 0 for d in (torch.bfloat16, torch.float16, torch.float64, torch.bool)),
    lambda ctx: [special(ctx, 5, 9) * 1001 / 16],
)
graphs.function(
    "casts-between-operators",
    ["C1"],
    lambda x: (
        (x * 2).to(torch.int64) + 1,
        (x.to(torch.bfloat16) * 2).to(x.dtype),
        (x.to(torch.int32) // 2).to(x.dtype) * 2,
        (x > 0).to(x.dtype) * x,
        x.to(torch.bool).to(torch.int32).sum(0),
        (x / 2).to(torch.int32).amax(1),
    ),
    lambda ctx: [fractions(ctx, 6, 17)],
    smoke=True,
)
graphs.function(
    "casts-of-what-is-summed",
    ["C1"],
    lambda x: (
        x.to(torch.int64).sum(0),
        x.sum(1, dtype=torch.float64),
        x.to(torch.float64).sum(),
        x.to(torch.bfloat16).amax(0),
        x.to(torch.float16).to(torch.float64).sum(1),
    ),
    lambda ctx: [fractions(ctx, 8, 9)],
)


# -- shapes ------------------------------------------------------------------------------------------------------------


def expanded(x: Tensor) -> tuple[Tensor, ...]:
    wide = x.unsqueeze(1).expand(-1, 3, -1)
    return wide.sum(1), wide.sum(), wide.sum((0, 1)), (wide * 2).sum(1), wide.amax(1), (wide + 1).sum((1, 2))


def turned(x: Tensor) -> tuple[Tensor, ...]:
    """Of equal sizes, where turning twice could be taken for not turning at all."""
    return (
        x.permute(1, 2, 0).permute(1, 2, 0) + 1,
        x.transpose(0, 1).transpose(1, 2) * 2,
        x.permute(2, 0, 1).neg(),
        x.transpose(0, 2).reshape(16, 4) + 1,
        x.permute(1, 2, 0).contiguous().view(-1) - 1,
        x[0].t().t() + 1,
        x.permute(2, 1, 0).flatten(1).sum(0),
        x.transpose(1, 2).contiguous().transpose(1, 2) + x,
    )


def sliced(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x[1:][2:] + 1,
        x[::2][1::2] * 2,
        x[3][2] - 1,
        x[2:, 1:][1:, ::2] + 1,
        x[1:-1, -5:][:, 1:3].neg(),
        x.narrow(0, 2, 5).narrow(0, 1, 3) + 0.5,
        x[:, 2:].t()[1:] + 1,
        x[4:].sum(0),
        x[1:6][1].amax(),
    )


def joined(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    both = torch.cat([a + 1, b * 2, a - 1])
    return (
        both,
        both[2:-2] * 2,
        torch.stack([a, b, a + b], 1).sum(0),
        torch.cat([a.t(), b.t()], 1) + 1,
        torch.cat([a[1:], b[:1]]).relu(),
        F.pad(torch.cat([b, a], 1), (1, 0)) * 3,
    )


graphs.function("expanded-and-summed", ["C1"], expanded, lambda ctx: [ctx.ints(5, 9)], smoke=True)
graphs.function(
    "expanded-by-broadcasting-and-summed",
    ["C1"],
    lambda a, b: (
        (a + b).sum(0),
        (a * b).sum(),
        (a.expand(4, 7) * 1).sum(0),
        a.expand(4, 7).sum(0),
        b.expand(4, 7).sum(1),
        b.expand(4, 7).cumsum(1),
    ),
    lambda ctx: [ctx.ints(7), ctx.ints(4, 1)],
)
graphs.function(
    "sums-of-given-expanded",
    ["C1", "layouts.C2"],
    lambda x: (x.sum(0), x.sum(1), x.sum(), x.amax(0)),
    lambda ctx: [ctx.ints(1, 9).expand(5, 9)],
)
graphs.function(
    "summed-after-being-repeated",
    ["C1"],
    lambda x: (
        x.expand(6, -1).sum(0),
        x[None].expand(3, 2, 9).sum(),
        x[None, None].expand(2, 2, -1, -1).sum((0, 1)),
        x.expand(4, 9).mean(0),
    ),
    lambda ctx: [ctx.ints(1, 9)],
)
graphs.function("turned-twice", ["C1"], turned, lambda ctx: [ctx.ints(4, 4, 4)], smoke=True)
graphs.function(
    "turned-twice-in-a-row",
    ["C1"],
    lambda x: (
        (x.t() + 1).t() * 2,
        ((x.t() * 2).t() + x).t(),
        (x + 1).t().reshape(-1)[3:],
        x.t().relu().sum(0),
        (x - x.t()).t().flatten(),
        x.flip(0).t().flip(0),
    ),
    lambda ctx: [ctx.ints(7, 7)],
)
graphs.function(
    "turned-and-multiplied",
    ["C1"],
    lambda a, b: (
        a.transpose(1, 2) @ b,
        (a @ b.transpose(1, 2)).transpose(1, 2) + 1,
        a.permute(1, 0, 2).reshape(3, 9).sum(1),
        a.permute(2, 0, 1).permute(2, 0, 1) * b,
        a.permute(1, 2, 0).reshape(9, 3) @ b[0],
    ),
    lambda ctx: [ctx.ints(3, 3, 3), ctx.ints(3, 3, 3)],
)
graphs.function(
    "sliced-twice-in-a-row",
    ["C1"],
    lambda x: (
        (x[2:] + 1)[3:] * 2,
        x[1:].sum(0)[2:] - 1,
        x[3:].narrow(1, 2, 3).relu(),
        x[:, 1:][2:].t() + 1,
        x[2:][:, 3:] @ x[:5, 1:3],
        x[::3][1:] + x[1][None],
    ),
    lambda ctx: [ctx.ints(9, 8)],
)
graphs.function("sliced-twice", ["C1"], sliced, lambda ctx: [ctx.ints(9, 8)], smoke=True)
graphs.function(
    "joined-within",
    ["C1"],
    lambda a, b: (
        torch.cat([a, b, a * 2]).sum(0),
        torch.cat([a.relu(), b.relu()], 1)[:, 3:11] + 1,
        torch.stack([a - 1, b + 1]).amax(0) * torch.stack([b, a], 2).sum(2),
        torch.cat([torch.cat([a, b]), b - a]).t(),
    ),
    lambda ctx: [ctx.ints(6, 7), ctx.ints(6, 7)],
)
graphs.function(
    "joined-of-three",
    ["C1"],
    lambda a, b, c: (
        torch.cat([a, b, c], -1) * 2,
        torch.stack([c, a, b], -1),
        torch.cat([c, c, b]) - torch.cat([a, b, a]),
    ),
    lambda ctx: [ctx.ints(3, 4), ctx.ints(3, 4), ctx.ints(3, 4)],
)
graphs.function("joined-and-cut", ["C1"], joined, lambda ctx: [ctx.ints(5, 7), ctx.ints(5, 7)], smoke=True)


# -- nodes that are alike ----------------------------------------------------------------------------------------------


def alike(x: Tensor) -> tuple[Tensor, ...]:
    """The same operators of the same argument, with other numbers."""
    calls: list[Callable[[int], Any]] = [
        lambda k: x.sum(k),
        lambda k: x.amax(k),
        lambda k: x + (k + 1),
        lambda k: x * (k + 2),
        lambda k: x[k : k + 4] + 0,
        lambda k: x.roll(k + 1, 0),
        lambda k: x.roll(1, k),
        lambda k: x.clamp(-k - 1, k + 1),
        lambda k: x.cumsum(k),
        lambda k: x.flip(k),
        lambda k: x > k,
        lambda k: F.pad(x, (k, 1 - k)),
        lambda k: x.argmax(k),
        lambda k: x.tril(k),
        lambda k: x.to(torch.int32 if k else torch.int64),
    ]
    return tuple(call(k) for call in calls for k in (0, 1))


def constants(x: Tensor) -> tuple[Tensor, ...]:
    full = [torch.full((7,), v, dtype=x.dtype) for v in (2.0, 5.0, -1.0)]
    tables = [torch.tensor(t, dtype=x.dtype, device=x.device) for t in ([1.0, 2.0], [3.0, 4.0])]
    numbers = torch.arange(7, device=x.device) + torch.arange(1, 8, device=x.device)
    return (
        x * full[0] + full[1],
        x + full[2],
        full[1] - full[0] * x,
        torch.ones(7, dtype=x.dtype) * 3 + torch.zeros(7, dtype=x.dtype),
        torch.full_like(x, 4) - torch.full_like(x, 1),
        *tables,
        numbers,
    )


graphs.function("alike-but-for-numbers", ["C1"], alike, lambda ctx: [ctx.ints(6, 6)], smoke=True)


@graphs("C1", "models.C1", name="programs-alike-but-for-numbers", smoke=True)
def _programs(ctx: Context) -> None:
    """Programs of the same operators and types of arguments, one after another and in turns."""
    made = [
        ctx.compile(lambda x, k=k: (x.sum(k), x * (k + 2), x[k : k + 3] - 1, x.roll(1, k), x.clamp(-1 - k, k + 1)))
        for k in (0, 1)
    ]
    in_turns(ctx, made, 6, 6)


@graphs("C1", "models.C1", name="programs-alike-but-for-constants")
def _programs_of_constants(ctx: Context) -> None:
    made = [
        ctx.compile(
            lambda x, k=k: (
                x + torch.full((5,), k, dtype=x.dtype),
                x - torch.arange(5 * k, 5 * k + 5, device=x.device),
                (x > k).to(x.dtype).sum(0),
            )
        )
        for k in (1, 3, 2)
    ]
    in_turns(ctx, made, 4, 5)


graphs.function(
    "alike-but-for-numbers-in-a-row",
    ["C1"],
    lambda x: (
        ((x + 1) * 2 + 2) * 3 - 1,
        x[1:][1:] + x[:-1][:-1] + x[2:],
        x.sum(0).sum(0) + x.sum(1).amax(0),
        x.relu() + (-x).relu() * 2,
        x.amax(0, keepdim=True) - x.amax(1, keepdim=True),
    ),
    lambda ctx: [ctx.ints(6, 6)],
)
graphs.function(
    "alike-integers",
    ["C1"],
    lambda x: (
        x // 2,
        x // 3,
        x % 4,
        x % 5,
        x << 1,
        x << 2,
        x & 6,
        x & 5,
        x.sum(0),
        x.sum(1),
        x.gather(0, x % 5),
        x.gather(1, x % 5),
    ),
    lambda ctx: [ctx.indices(9, 5, 5)],
)
graphs.function("constants-of-one-size", ["C1"], constants, lambda ctx: [ctx.ints(4, 7)], smoke=True)
graphs.function(
    "constants-of-one-size-used-late",
    ["C1"],
    lambda x: (
        (x.relu() + torch.full((5, 5), 3.0, dtype=x.dtype)).sum(0),
        (x @ torch.full((5, 5), 2.0, dtype=x.dtype)),
        x.masked_fill(x > 0, 4.0).masked_fill(x < 0, -9.0),
        x.new_full((5,), 8) * x.new_full((5,), 2),
    ),
    lambda ctx: [ctx.ints(5, 5)],
)
graphs.function(
    "constants-of-one-size-and-other-dtypes",
    ["C1"],
    lambda x: (
        torch.full((3,), 1),
        torch.full((3,), 2),
        torch.full((3,), 2.0),
        torch.full((3,), 4.0) - x,
        x + torch.full((3,), 6),
        torch.where(x > 0, torch.full((3,), 5.0, dtype=x.dtype), torch.full((3,), 7.0, dtype=x.dtype)),
    ),
    lambda ctx: [ctx.ints(3)],
)
