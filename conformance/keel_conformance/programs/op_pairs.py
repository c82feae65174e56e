"""Contract programs of two operators in a row, which compilers take for one, for none, or for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter, bound
from .rewrites import in_turns, special

graphs = Chapter("graphs")


def of_numbers(x: Tensor) -> tuple[Tensor, ...]:
    """What undoes, limits or repeats what was done before."""
    return (
        x.clamp(-2, 3).clamp(-1, 9),
        x.clamp(min=0).clamp(max=-1),
        x.clamp(-3, 1) - x.clamp(-1, 3),
        (-x).relu(),
        -x.relu(),
        (-x).abs(),
        x.abs().neg(),
        x.abs().sign(),
        x.sign().abs(),
        x.relu().neg().relu(),
        (x + 1).relu() - 1,
        x.floor().neg() - x.neg().floor(),
        (x / 2).ceil() - (x / 2).floor(),
        (x / 2).round() * 2,
        (x / 2).trunc() + (-x / 2).floor(),
        torch.maximum(torch.minimum(x, x * 0 + 2), x * 0 - 1),
        (x > 0) ^ (x >= 0),
        ~(x < 0) & ~(x == 0),
        (x - 1) ** 2 - 1,
        (x * x).sqrt(),
        (x % 3) % 2,
        (x // 2) * 2,
        (x * 3) // 2,
        x.fmod(3) - x.remainder(3),
    )


def of_integers(x: Tensor) -> tuple[Tensor, ...]:
    """Where what is cut off, or runs over, does not come back."""
    return (
        x // 4 * 4,
        x * 4 // 4,
        (x >> 3) << 3,
        (x << 3) >> 3,
        x // 3 // 2,
        x // 6 - x // 2 // 3,
        x % 12 % 5,
        (x & 12) >> 2,
        (x >> 2) & 3,
        (x | 3) ^ 3,
        (-x) // 2 + x // 2,
        (-x) >> 1,
        x.abs() // 2 * x.sign(),
        x.clamp(-9, 9).clamp(0, 99),
        (x + 1) // 2 - x // 2,
        x.remainder(7) - x.fmod(7),
        x.to(torch.int32).to(x.dtype),
        x.to(torch.uint8).to(x.dtype) * 2,
        (x * 2).to(torch.bool),
        x.to(torch.bool).to(x.dtype) * 2,
    )


def of_joins(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Pieces of what was joined, filled up or turned: of one part, of the other, of both."""
    both, side, padded = torch.cat([a, b]), torch.cat([a, b], 1), F.pad(a, (2, 1, 1, 2), value=3)
    return (
        both[3:7] * 2,
        both[1:4] + 1,
        both[6:9] - 1,
        both[::3] + 1,
        side[:, 4:9] * 2,
        side[1:3, 6:8] - 1,
        torch.cat([both[2:6], both[4:8]]) + 1,
        torch.cat([a[2:], a[:3]]) * 2,
        torch.cat([a[1:3], a[3:]]) + b[1:],
        padded[1:6, 2:9] + 1,
        padded[:3, :4] * 2,
        F.pad(padded, (-1, 2, 0, -1), value=5) + 1,
        torch.stack([a, b])[1] + a,
        torch.stack([a, b, a], 1)[:, 1:].sum(1),
        both.flip(0)[:6] + 1,
        both.roll(3, 0)[2:5] * 2,
        side.flip(1).flip(0),
        both.roll(2, 0).roll(-3, 0) + 1,
        both.split([3, 4, 3])[1] + 1,
        side.unflatten(1, (2, -1))[:, 0] - b,
    )


def of_sizes(x: Tensor) -> tuple[Tensor, ...]:
    """Dimensions of one element that come and go; sums in parts."""
    return (
        x.unsqueeze(0).squeeze(0) + 1,
        x.unsqueeze(1).transpose(0, 1).squeeze(0) * 2,
        x[:, None].squeeze(1) - 1,
        x[:1].expand(5, -1) + x,
        x[:, :1].expand(-1, 5).t() + 1,
        x.sum(0).sum() - x.sum(),
        x.amax(0).sum() * 2,
        x.sum(0).amax() - x.amax(1).sum(),
        x.flip(0).cumsum(0) * 2,
        x.cumsum(0).flip(0) + 1,
        x.cumsum(0).cumsum(1),
        -(-x).amax(0),
        (-x).amax(1) + x.amin(1),
        (-x).argmax(1) - x.argmin(1),
        x.sort(1).values.flip(1) * 2,
        x.sort(0, descending=True).values[:2] + 1,
        x.reshape(25)[3:13].reshape(2, 5) + 1,
        x.t().reshape(-1)[::6] - 1,
        x.tril().triu() + 1,
        x.tril(-1) + x.triu(1),
        x.diagonal().diag_embed() - x,
        x.t().contiguous().view(25)[1:] * 2,
    )


def of_places(x: Tensor, i: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Choices of choices, and what is taken from what was taken."""
    return (
        x[i][i] + 1,
        x[i[i]] * 2,
        x.gather(1, i[:, None] % 5).gather(0, i[:2, None] % 5),
        x[i][:, i % 5] - 1,
        torch.where(c, torch.where(x > 0, x, -1), 2),
        torch.where(c, x, torch.where(~c, x * 2, x)),
        x.masked_fill(c, 3).masked_fill(x > 2, -3),
        x.masked_fill(x > 0, 0).masked_fill(~c, 1),
        x.index_add(0, i, x[i]).index_add(0, i, -x[i]) + 1,
        x.index_select(1, i % 5).index_select(1, i % 3).t() * 2,
        torch.where(c, x, 0).sum(0) + torch.where(c, 0, x).sum(0),
        (x > 0).to(x.dtype).cumsum(1),
    )


def five(ctx: Context) -> list[Tensor]:
    return [ctx.ints(5, 5), ctx.ints(5, 5)]


for _name, _dtype in (("", None), ("-of-float64", torch.float64)):
    graphs.function(f"pairs{_name}", ["C1"], of_numbers, bound(lambda ctx, d: [ctx.ints(7, 9, dtype=d)], _dtype))
    graphs.function(
        f"pairs-of-special-values{_name}",
        ["C1"],
        lambda x: (
            x.clamp(-2, 3).clamp(-1, 9),
            x.abs().neg(),
            (-x).relu(),
            -(x.relu()),
            x.neg().abs(),
            x.relu().relu(),
            x * 0 + x,
            torch.maximum(x, -x),
            torch.minimum(x.abs(), x),
            (x > 1) | ~(x > 1),
            ~(x >= 1) ^ (x < 1),
            x.isnan() | (x == x),
            torch.where(x != x, x, -x),
            x.clamp(min=0) + x.clamp(max=0),
        ),
        bound(lambda ctx, d: [special(ctx, 5, 9, dtype=d)], _dtype),
    )
    graphs.function(
        f"pairs-of-pieces{_name}",
        ["C1"],
        of_joins,
        bound(lambda ctx, d: [ctx.ints(5, 7, dtype=d), ctx.ints(5, 7, dtype=d)], _dtype),
        smoke=not _name,
    )
    graphs.function(f"pairs-of-sizes{_name}", ["C1"], of_sizes, bound(lambda ctx, d: [ctx.ints(5, 5, dtype=d)], _dtype))
    graphs.function(
        f"pairs-of-places{_name}",
        ["C1"],
        of_places,
        bound(lambda ctx, d: [ctx.ints(5, 5, dtype=d), ctx.indices(5, 5), ctx.bools(5, 5)], _dtype),
    )
graphs.function(
    "pairs-of-what-a-mask-takes",
    ["C1"],
    lambda x, c: (x[c.any(1)].sum(0), x[c][1:] * 2, x[c].sum() - x[~c].sum(), (x + 1)[c.all(0)] - 1),
    lambda ctx: [ctx.ints(5, 5), ctx.bools(5, 5)],
    breaks=True,
)
graphs.function(
    "pairs-of-integers",
    ["C1", "dtypes.C3"],
    of_integers,
    lambda ctx: [ctx.indices(1 << 62, 5, 7) - (1 << 61)],
    smoke=True,
)
graphs.function(
    "pairs-of-integers-of-32-bits",
    ["C1", "dtypes.C3"],
    of_integers,
    lambda ctx: [(ctx.indices(1 << 31, 5, 7) - (1 << 30)).to(torch.int32)],
)
graphs.function("pairs-of-small-integers", ["C1", "dtypes.C3"], of_integers, lambda ctx: [ctx.indices(99, 6, 9) - 49])
graphs.function(
    "operands-that-change-places",
    ["C1"],
    lambda a, b: (
        a - b,
        b - a,
        a / (b.abs() + 1) * 0,
        a < b,
        b < a,
        a @ b,
        b @ a,
        torch.where(a > 0, a, b),
        torch.where(a > 0, b, a),
        a.t() @ b,
        b @ a.t(),
        (a // (b.abs() + 1)).sum(0),
        torch.cat([a, b]),
        torch.cat([b, a]),
        a.copysign(b).abs() - b.abs(),
        a - a.amax(0),
        a - a.amax(1),
        a - a.amax(1, keepdim=True),
        a.t() - a,
        a - a.t(),
    ),
    five,
)
graphs.function(
    "products-of-what-is-turned",
    ["C1"],
    lambda a, b: (
        a.t() @ b,
        a @ b.t(),
        a.t() @ b.t(),
        (a @ b).t(),
        (a.t() @ b).t() + a,
        a.t().contiguous() @ b,
        (a + 1).t() @ b.relu(),
        torch.mv(a.t(), b[0]),
        torch.mv(a, b[:, 0]),
        torch.addmm(b[0], a.t(), b),
        torch.addmm(b, a, b.t(), beta=2),
    ),
    five,
)
graphs.function(
    "products-of-batches-that-are-turned",
    ["C1"],
    lambda a, b: (
        a.mT @ b,
        a @ b.mT,
        a.transpose(0, 1) @ b,
        (a @ b).mT + a,
        torch.einsum("bij,bkj->ikb", a, b),
        torch.einsum("bij,bjk->bk", a, b),
    ),
    lambda ctx: [ctx.ints(4, 4, 4), ctx.ints(4, 4, 4)],
)


def numbers(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    """Numbers that narrower dtypes lack."""
    return (
        x * 0.1,
        x + 0.3333333333333333,
        1.1 - x,
        x / 3,
        x * s,
        s - x,
        x.clamp(-0.7, 0.7),
        x.lerp(s, 0.1),
        torch.where(x > 0, x, 0.1),
        F.leaky_relu(x, 0.123),
        torch.full_like(x, 0.1) + x,
        x.pow(2.0) * 1e-3,
    )


for _dtype in (torch.float32, torch.float64):
    graphs.function(
        f"numbers-with-digits-{str(_dtype).removeprefix('torch.')}",
        ["C1", "scalars.C2"],
        numbers,
        bound(
            lambda ctx, d: [
                ctx.normal(5, 9).to(torch.float64 if ctx.wide else d),
                torch.tensor(0.7234567890123, dtype=torch.float64 if ctx.wide else d),
            ],
            _dtype,
        ),
        exact=False,
    )
graphs.function(
    "numbers-with-digits-of-0-d",
    ["C1", "scalars.C1"],
    lambda x, s: (x * s, s - x, x + s * 2, torch.where(x > 0, s.to(x.dtype), x)),
    lambda ctx: [ctx.normal(7, 5), torch.tensor(0.1, dtype=torch.float64)],
    exact=False,
)


def chain(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Many operators in a row, and many values that live long."""
    retained, x = [], a
    for k in range(20):
        x = ((x * 2 - b) if k % 3 else (x.flip(k % 2) - a)).clamp(-50, 50)
        x = (x.t() + b if k % 4 == 1 else x - x.amax(k % 2, keepdim=True)).clamp(-50, 50)
        retained.append(x + k)
    return (x, sum(retained[::3], a), *retained[1::4])


graphs.function("a-chain-of-a-hundred", ["C1"], chain, five, smoke=True)
graphs.function(
    "a-chain-of-integers",
    ["C1", "dtypes.C3"],
    chain,
    lambda ctx: [ctx.ints(5, 5, dtype=torch.int64), ctx.ints(5, 5, dtype=torch.int64)],
)
graphs.function(
    "twenty-arguments",
    ["C1", "arguments.C1"],
    lambda *xs: (sum((k + 1) * x for k, x in enumerate(xs)), *(x - xs[0] for x in xs[10:]), torch.cat(xs[::-1])),
    lambda ctx: [ctx.ints(3, 4) for _ in range(20)],
)
graphs.function(
    "forty-arguments-and-results",
    ["C1", "arguments.C1"],
    lambda *xs: tuple(x * (k % 7) - xs[k - 1] for k, x in enumerate(xs)),
    lambda ctx: [ctx.ints(5) for _ in range(40)],
)
LONG = 112
"""More tensors than one launch of PyTorch's own kernels for lists serves, which are 110 at the most."""
graphs.function(
    "lists-longer-than-a-launch",
    ["C1", "arguments.C1"],
    lambda *xs: (
        *torch.ops.aten._foreach_add.List(xs[:LONG], xs[LONG:], alpha=2),
        *torch.ops.aten._foreach_mul.ScalarList(xs[LONG:], [k % 7 - 3.0 for k in range(LONG)]),
    ),
    lambda ctx: [ctx.ints(2) for _ in range(2 * LONG)],
)
graphs.function(
    "arguments-of-many-types",
    ["C1", "arguments.C1"],
    lambda *xs: tuple(x + xs[k - 4].to(x.dtype).sum() for k, x in enumerate(xs)),
    lambda ctx: [
        ctx.ints(3, dtype=d) for _ in range(5) for d in (torch.float32, torch.int64, torch.float64, torch.int32)
    ],
)


@graphs("C1", "models.C1", name="programs-alike-but-for-literals")
def _literals(ctx: Context) -> None:
    """Whatever is kept by a program's operators and types serves only one of these."""
    made = [
        ctx.compile(fn)
        for fn in (
            lambda x: (x.sum(0) * 2.0, x[1:] + 1.5, x.clamp(-2, 2)),
            lambda x: (x.sum(0) * 3.0, x[1:] + 2.5, x.clamp(-1, 1)),
            lambda x: (x.sum(0) * 2.0, x[:-1] + 1.5, x.clamp(-2, 2)),
            lambda x: (x.sum(1) * 2.0, x[1:] + 1.5, x.clamp(-2, 1)),
        )
    ]
    in_turns(ctx, made, 5, 5)


@graphs("C1", "models.C1", name="programs-alike-but-for-dimensions")
def _dimensions(ctx: Context) -> None:
    """Along which one each goes tells them apart, of a cube nothing else does."""
    made = [
        ctx.compile(
            lambda x, i=i, j=j, k=k: (
                x.permute(i, j, k) * 2,
                x.cumsum(i),
                x.flip(j),
                x.amax(k),
                x.select(i, 1) - x.select(j, 2),
                torch.cat([x, x + 1], k).sum(j),
            )
        )
        for i, j, k in ((0, 2, 1), (2, 0, 1), (1, 0, 2))
    ]
    in_turns(ctx, made, 4, 4, 4)


@graphs("C1", "models.C1", name="programs-alike-but-for-their-tensors")
def _tensors(ctx: Context) -> None:
    """Tables that programs were written with."""
    tables = [ctx.ints(5), ctx.ints(5), ctx.ints(5)]
    made = [ctx.compile(lambda x, t=t: x * t + t) for t in tables]
    made += [
        ctx.compile(fn)
        for fn in (
            lambda x: x + torch.tensor([1.0, 2, 3, 4, 5], dtype=x.dtype, device=x.device),
            lambda x: x + torch.tensor([5.0, 4, 3, 2, 1], dtype=x.dtype, device=x.device),
        )
    ]
    in_turns(ctx, made, 3, 5)


# Programs that have the same operators and types for k = 2, 3 and 4, and still differ: by numbers that are equal when
# printed with six digits or rounded to float32, or by keyword arguments.
ALIKE: Mapping[str, Callable[[Tensor, int], Any]] = {
    "digits-of-a-factor": lambda x, k: x.double() * (1 + k * 2.0**-30),
    "digits-of-an-addend": lambda x, k: (x.double() + (2.0**40 + k)).t(),
    "digits-of-a-bound": lambda x, k: (x.double() + 2**40).clamp(max=2.0**40 + k - 3),
    "digits-of-what-is-filled": lambda x, k: (
        torch.full((3,), 2.0**40 + k, dtype=torch.float64, device=x.device),
        x.double().masked_fill(x > 0, 2.0**40 + k),
    ),
    "digits-of-integers": lambda x, k: (x.long() * (10**9 + k), x.long() + (2**40 + k)),
    "alpha": lambda x, k: (torch.add(x, x.flip(0), alpha=k), torch.sub(x, x[0], alpha=-k)),
    "alpha-of-indices": lambda x, k: torch.zeros_like(x).index_add(
        0, torch.tensor([2, 0, 2, 1], device=x.device), x, alpha=k
    ),
    "alpha-and-beta": lambda x, k: torch.addmm(x, x[:, :4], x, beta=k, alpha=1 - k),
    "rounding": lambda x, k: torch.div(x, 3, rounding_mode="floor" if k == 3 else "trunc"),
    "side": lambda x, k: torch.bucketize(x, torch.arange(-3.0, 4, device=x.device).to(x.dtype), right=k == 3),
    "what-is-included": lambda x, k: x.scatter_reduce(0, (x > 0).long(), x.flip(0) * 2, "amax", include_self=k == 3),
    "correction": lambda x, k: torch.var(
        x[:, :4] * 0 + torch.arange(4.0, device=x.device).to(x.dtype) * 12, 1, correction=k - 2
    ),
}


def _alone(fn: Callable[[Tensor, int], Any], k: int, name: str) -> Callable[[Tensor], Any]:
    """``fn`` of x and this number, as if it were written for it: of one function, Dynamo takes a number that changes
    for an argument.
    """

    def one(x: Tensor) -> Any:
        return fn(x, k)

    one.__code__ = one.__code__.replace(co_name=f"{name}-{k}", co_firstlineno=k)
    return one


def _alike() -> None:
    for name, fn in ALIKE.items():

        @graphs("C1", "models.C1", name=f"programs-alike-but-for-{name}")
        def body(ctx: Context, fn: Callable[[Tensor, int], Any] = fn, name: str = name) -> None:
            in_turns(ctx, [ctx.compile(_alone(fn, k, name)) for k in (2, 3, 4)], 4, 5)


_alike()


@graphs("C1", "models.C1", name="programs-alike-but-for-their-order", smoke=True)
def _orders(ctx: Context) -> None:
    """The same operators, of operands and results in another order, or of another intermediate value."""
    made = [
        ctx.compile(fn)
        for fn in (
            lambda x: (x - x.t(), (x * 2 + 1) * 3, x + 1, x * 2),
            lambda x: (x.t() - x, (x * 2 + 1) * 3, x + 1, x * 2),
            lambda x: (x - x.t(), (x * 2 + 1) * 3, x * 2, x + 1),
            lambda x: (x - x.t(), (x + 1) * 3 * 2, x + 1, x * 2),
            lambda x: (x - x.t(), (x * 3 + 1) * 2, x + 1, x * 2),
        )
    ]
    in_turns(ctx, made, 5, 5)


def _many(x: Tensor, k: int) -> Tensor:
    for call in range(32):
        x = x.abs() if call == k else x.neg() if call % 2 else x + 1
    return x


@graphs("C1", "models.C1", name="programs-alike-but-for-one-of-many-calls")
def _one_of_many(ctx: Context) -> None:
    """Another call comes first, in the middle, or last."""
    in_turns(ctx, [ctx.compile(_alone(_many, k, "one-of-many")) for k in (0, 15, 30, 31)], 5, 5)
