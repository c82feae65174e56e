"""Contract programs about random numbers: facts that hold whatever generator a backend has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .context import Context
from .program import Chapter

random = Chapter("random")
MANY = 4096


def moved(ctx: Context, name: str, result: Tensor, before: Tensor) -> None:
    ctx.check(f"{name} differs from the call before", not torch.equal(result, before), "contract.random.C2")


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: torch.rand(MANY, device=x.device) + 0 * x,
    "randn": lambda x: torch.randn(MANY, device=x.device) + 0 * x,
    "dropout": lambda x: F.dropout(x, 0.5),
    "rand-like": lambda x: torch.rand_like(x) * 2,
    "bernoulli": lambda x: torch.bernoulli(x * 0.5),
}


def _seeds() -> None:
    for name, fn in DRAWS.items():

        @random("C1", "C2", name=f"seed-of-{name}", smoke=name == "dropout")
        def seeds(ctx: Context, fn: Callable[[Tensor], Tensor] = fn) -> None:
            go = ctx.compile(fn)
            x = torch.ones(MANY)
            for call in ctx.rounds():
                torch.manual_seed(ctx.seed + call)
                first, second = go(x), go(x)
                torch.manual_seed(ctx.seed + call)
                ctx.check(f"call {call}: the seed gives the same", torch.equal(go(x), first), "contract.random.C1")
                ctx.check(f"call {call}: and after it too", torch.equal(go(x), second), "contract.random.C1")
                moved(ctx, f"call {call}", second, first)
                torch.manual_seed(ctx.seed + call + 1000)
                ctx.check(
                    f"call {call}: another seed, other numbers", not torch.equal(go(x), first), "contract.random.C2"
                )


_seeds()


def share(result: Tensor, p: float) -> bool:
    """Whether as many elements are not zero as a chance of ``p`` gives: within 7 standard deviations, which one draw
    in 4e11 leaves.
    """
    n = result.numel()
    return bool(abs(int((result != 0).sum()) - n * p) <= 7 * (n * p * (1 - p)) ** 0.5)


@random("C5", smoke=True)
def dropout_keeps_and_scales(ctx: Context) -> None:
    for p in (0.25, 0.5, 0.75):
        go = ctx.compile(lambda x, p=p: F.dropout(x, p))
        for call in ctx.rounds():
            torch.manual_seed(ctx.seed + call)
            x = ctx.ints(64, 64, low=1)
            result = go(x)
            scaled = (result == x / (1 - p)) | (result - x / (1 - p)).abs().le(4e-7 * x / (1 - p))
            ctx.check(f"p={p}, call {call}: kept elements are scaled", ((result == 0) | scaled).all())
            ctx.check(f"p={p}, call {call}: as many are kept as should be", share(result, 1 - p))
            rows = (result != 0).sum(1)
            ctx.check(f"p={p}, call {call}: rows differ", rows.min() < rows.max())


@random("C5")
def dropout_of_nothing_and_all(ctx: Context) -> None:
    none, everything = ctx.compile(lambda x: F.dropout(x, 0.0)), ctx.compile(lambda x: F.dropout(x, 1.0))
    for _ in ctx.rounds():
        x = ctx.ints(9, 9)
        ctx.record("p = 0", none(x))
        ctx.record("p = 1", everything(x))


@random("C5")
def dropout_of_eval(ctx: Context) -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.ReLU())
    go = ctx.compile(module)
    for call in ctx.rounds():
        module.train(call % 2 == 1)
        torch.manual_seed(ctx.seed + call)
        x = ctx.ints(40, 40, low=1)
        result = go(x)
        if module.training:
            ctx.check(f"call {call}: training drops", share(result, 0.5))
        else:
            ctx.record("eval", result)


@random("C3", "C5", smoke=True, profile="training")
def backward_has_the_mask(ctx: Context) -> None:
    go = ctx.compile(lambda x: F.dropout(x * 2, 0.5) * 3)
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        x = ctx.ints(50, 40, low=1).requires_grad_()
        result = go(x)
        result.backward(torch.ones_like(result))
        assert x.grad is not None
        ctx.check(f"call {call}: gradient where the result is", ((x.grad != 0) == (result != 0)).all())
        ctx.check(f"call {call}: gradient of its size", ((x.grad == 0) | (x.grad == 12)).all())
        ctx.check(f"call {call}: some are kept", share(result, 0.5))


@random("C3", profile="training")
def backward_after_other_draws(ctx: Context) -> None:
    go = ctx.compile(lambda x: F.dropout(x, 0.5) * 3)
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        x, other = ctx.ints(50, 40, low=1).requires_grad_(), ctx.ints(50, 40, low=1)
        result = go(x)
        go(other)
        torch.rand(17)
        torch.manual_seed(5)
        result.backward(torch.ones_like(result))
        ctx.check(f"call {call}: gradient where the result is", ((x.grad != 0) == (result != 0)).all())


@random("C3", "C6", profile="training")
def two_dropouts_in_a_row(ctx: Context) -> None:
    go = ctx.compile(lambda x: (first := F.dropout(x, 0.5), F.dropout(first, 0.5)))
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        x = torch.ones(80, 50, requires_grad=True)
        first, second = go(x)
        ctx.check(f"call {call}: the second drops of what is left", share(second, 0.25))
        ctx.check(f"call {call}: nothing comes back", not ((first == 0) & (second != 0)).any())
        second.backward(torch.ones_like(second))
        ctx.check(
            f"call {call}: gradient where the result is", ((x.grad != 0) == (second != 0)).all(), "contract.random.C3"
        )


def recomputations(
    ctx: Context,
    block: Callable[[Tensor], Tensor],
    draw: Callable[[], Tensor],
    count: int = 1,
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Runs ``count`` checkpointed blocks in a row, and yields the argument at each call, with its gradient, and the
    result. Other numbers are drawn between forward and backward.
    """

    def fn(x: Tensor) -> Tensor:
        for _ in range(count):
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=True)
        return x

    go = ctx.compile(fn)
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        x = draw().requires_grad_()
        result = go(x)
        torch.rand(3)
        result.backward(torch.ones_like(result))
        yield call, x, result


@random("C4", "C3", profile="training", smoke=True)
def recomputed(ctx: Context) -> None:
    """Activation checkpointing draws the mask again; it is the forward pass's."""
    for call, x, result in recomputations(
        ctx, lambda x: F.dropout(x * 2, 0.5).relu() * 3, lambda: ctx.ints(50, 40, low=1)
    ):
        assert x.grad is not None
        assert x.grad is not None
        ctx.check(f"call {call}: gradient where the result is", ((x.grad != 0) == (result != 0)).all())
        ctx.check(f"call {call}: gradient of its size", ((x.grad == 0) | (x.grad == 12)).all())


@random("C6", smoke=True)
def independent(ctx: Context) -> None:
    go = ctx.compile(lambda x: (torch.rand_like(x), torch.rand_like(x), F.dropout(x, 0.5), F.dropout(x, 0.5)))
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        a, b, c, d = go(torch.ones(MANY))
        ctx.check(f"call {call}: two draws differ", not torch.equal(a, b))
        for name, u, v in (("uniform numbers", a - 0.5, b - 0.5), ("masks", c - 1, d - 1)):
            # A sample correlation of n independent pairs has a standard deviation of 1 / sqrt(n).
            correlation = float((u * v).mean() / (u.square().mean() * v.square().mean()).sqrt())
            ctx.check(f"call {call}: {name} do not correlate", abs(correlation) < 7 / MANY**0.5)


TWICE: dict[str, Callable[[Tensor], Tensor]] = {
    **DRAWS,
    "randint": lambda x: torch.randint(-9, 9, (MANY,), device=x.device),
    "randperm": lambda x: torch.randperm(MANY, device=x.device),
    "normal": lambda x: torch.normal(x, 2.0),
    "randint-like": lambda x: torch.randint_like(x, 50),
}


def _twice() -> None:
    """The same draw twice in a program, with other operators between them."""
    for name, fn in TWICE.items():

        @random("C6", name=f"two-of-{name}", smoke=name == "rand")
        def body(ctx: Context, fn: Callable[[Tensor], Tensor] = fn) -> None:
            go = ctx.compile(lambda x: (fn(x), fn(x) + 0, x.relu() * 2, fn(x)))
            for call in ctx.rounds():
                torch.manual_seed(ctx.seed + call)
                first, second, _, third = go(torch.ones(MANY))
                ctx.check(
                    f"call {call}: no two are the same",
                    not (torch.equal(first, second) or torch.equal(second, third) or torch.equal(first, third)),
                )


_twice()


@random("C7")
def orders_of_few(ctx: Context) -> None:
    """Each of few stands at each place as often as at others: the counts' chi-square within 7 of its deviations."""
    n, times = 4, 60
    go = ctx.compile(lambda x: torch.stack([torch.randperm(n, device=x.device) for _ in range(times)]) + 0 * x)
    counts = torch.zeros(n, n, dtype=torch.float64)
    calls = max(ctx.calls, 6)
    torch.manual_seed(ctx.seed)
    for _ in range(calls):
        order = go(torch.zeros((), dtype=torch.int64))
        counts += torch.nn.functional.one_hot(order, n).sum(0)
    mean = calls * times / n
    freedom = (n - 1) ** 2
    off = float((counts - mean).square().sum() / mean)
    ctx.check("each stands at each place", off < freedom + 7 * (2 * freedom) ** 0.5)


@random("C7")
def ranges(ctx: Context) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        here: dict[str, Any] = {"device": x.device}
        return (
            torch.rand(MANY, **here),
            torch.randint(-3, 4, (MANY,), **here),
            torch.bernoulli(x),
            torch.randperm(100, **here),
            torch.randn(MANY, **here),
            torch.randint_like(x, 5),
        )

    go = ctx.compile(fn)
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        uniform, integers, coins, order, normal, like = go(torch.full((MANY,), 0.5))
        ctx.check(f"call {call}: rand", (uniform >= 0).all() & (uniform < 1).all())
        ctx.check(f"call {call}: rand fills the range", uniform.min() < 0.02 and uniform.max() > 0.98)
        ctx.check(f"call {call}: randint", integers.unique().tolist() == list(range(-3, 4)))
        ctx.check(f"call {call}: bernoulli", ((coins == 0) | (coins == 1)).all() and share(coins, 0.5))
        ctx.check(f"call {call}: randperm", order.sort().values.equal(torch.arange(100)))
        ctx.check(f"call {call}: randn", abs(float(normal.mean())) < 7 / MANY**0.5)
        ctx.check(f"call {call}: randint_like", like.unique().tolist() == [0, 1, 2, 3, 4])
        ctx.record("types", [str(x.dtype) for x in (uniform, integers, coins, order, normal, like)])


@random("C7")
def moments(ctx: Context) -> None:
    """Mean and variance of what is drawn, each within 7 of its standard deviations."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.rand_like(x), torch.randn_like(x)

    go = ctx.compile(fn)
    n = 20000
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        uniform, normal = go(torch.ones(n))
        for name, x, mean, variance, fourth in (("uniform", uniform, 0.5, 1 / 12, 1 / 80), ("normal", normal, 0, 1, 3)):
            x = x.double() - mean
            ctx.check(f"call {call}: mean of {name}", abs(float(x.mean())) < 7 * (variance / n) ** 0.5)
            spread = ((fourth - variance**2) / n) ** 0.5
            ctx.check(f"call {call}: variance of {name}", abs(float(x.square().mean()) - variance) < 7 * spread)


@random("C2")
def every_call_draws_anew(ctx: Context) -> None:
    go = ctx.compile(lambda x: F.dropout(x, 0.5))
    torch.manual_seed(ctx.seed)
    x, earlier = torch.ones(MANY), list[Tensor]()
    for call in range(max(ctx.calls, 6)):
        result = go(x)
        ctx.check(f"call {call} is like none before", not any(torch.equal(result, s) for s in earlier))
        earlier.append(result)


@random("C2", "C1")
def of_sizes_that_change(ctx: Context) -> None:
    go = ctx.compile(lambda x: F.dropout(x, 0.5), dynamic=True)
    for call in ctx.rounds():
        torch.manual_seed(ctx.seed + call)
        x = torch.ones(1000 + 333 * call)
        result = go(x)
        ctx.check(f"call {call}: as many are kept as should be", share(result, 0.5), "contract.random.C5")
        torch.manual_seed(ctx.seed + call)
        ctx.check(f"call {call}: the seed gives the same again", torch.equal(go(x), result), "contract.random.C1")


@random("C8")
def nothing_drawn(ctx: Context) -> None:
    go = ctx.compile(lambda x: F.dropout(x.relu() + 1, 0.5, training=False))
    for call in ctx.rounds():
        torch.manual_seed(call)
        state = ctx.random_state()
        ctx.run(go, ctx.ints(5, 5))
        ctx.check(f"call {call}: the generator is as it was", torch.equal(state, ctx.random_state()))


@random("C1", "C2", profile="training")
def training_with_dropout_again(ctx: Context) -> None:
    """Two runs from one seed take the same steps."""
    ends = []
    for _ in range(2):
        torch.manual_seed(ctx.seed)
        module = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 1))
        optimizer, go = torch.optim.SGD(module.parameters(), 0.1), ctx.compile(module)
        x = torch.ones(4, 6)
        for _ in ctx.rounds():
            optimizer.zero_grad()
            go(x).square().mean().backward()
            optimizer.step()
        ends.append([p.detach().clone() for p in module.parameters()])
    ctx.check("the same parameters", all(map(torch.equal, *ends)))
