"""Contract programs about exceptions: what raises in eager PyTorch raises when it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..devices import HOST, synchronize
from .context import Context
from .program import Chapter

errors = Chapter("errors")


def raised(
    ctx: Context, name: str, go: Callable[..., Any], *args: Any, own: bool = False, after: tuple[Any, ...] = ()
) -> None:
    """Tells whether it raises, and of an exception of the program's own also which. A device may report an index at the
    next call, which gets the arguments ``after``.
    """
    try:
        go(*args)
        if after and ctx.device != HOST:
            synchronize(ctx.device)
            go(*after)
    except Exception as error:
        ctx.record(name, f"raised {type(error).__name__}" if own else "raised", "contract.errors.C1")
    else:
        ctx.record(name, "returned", "contract.errors.C1")


@errors("C1", "C2", smoke=True)
def sizes_that_do_not_fit(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a @ b).relu() + 1)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(3, 4), ctx.ints(4, 2))
        raised(ctx, f"call {call}", go, ctx.ints(3, 4), ctx.ints(5, 2))


@errors("C1", "C2")
def exception_of_its_own(ctx: Context) -> None:
    def fn(x: Tensor, limit: int) -> Tensor:
        if limit > 2:
            raise KeyError("limit")
        return x * limit

    go = ctx.compile(fn)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(4), 1)
        raised(ctx, f"call {call}", go, ctx.ints(4), 3, own=True)


@errors("C1", "C2")
def exception_after_a_write(ctx: Context) -> None:
    def fn(x: Tensor, bad: bool) -> Tensor:
        x.add_(1)
        y = x * 2
        torch.compiler.disable(check)(bad)
        return y + 1

    def check(bad: bool) -> None:
        if bad:
            raise ZeroDivisionError("bad")

    go = ctx.compile(fn)
    for call in ctx.rounds():
        x = ctx.ints(4)
        raised(ctx, f"call {call}", go, x, call % 2 == 1, own=True)
        ctx.record(f"argument {call}", x)


@errors("C1", "C2")
def index_beyond_the_end(ctx: Context) -> None:
    go = ctx.compile(lambda x, i: x[i] * 2)
    for call in ctx.rounds():
        good = ctx.ints(5, 2), ctx.indices(5, 3)
        ctx.run(go, *good)
        raised(ctx, f"call {call}", go, ctx.ints(5, 2), torch.tensor([0, 5, 1]), after=good)


def _outside() -> None:
    """Indices that are data, one of them outside; afterwards the same program, and another one, as ever."""
    for name, fn in (
        ("gathered", lambda x, i: x.gather(0, i[:, None] % 9) + 1),
        ("selected", lambda x, i: x.index_select(0, i) * 2),
        ("embedded", lambda x, i: F.embedding(i, x).relu()),
    ):

        @errors("C1", "C2", name=f"index-beyond-the-end-{name}", smoke=name == "selected")
        def body(ctx: Context, fn: Any = fn) -> None:
            go, other = ctx.compile(fn), ctx.compile(lambda x: x.sum(0) - 1)
            for call in ctx.rounds():
                good = ctx.ints(5, 2), ctx.indices(5, 3)
                ctx.run(go, *good)
                raised(ctx, f"call {call}", go, ctx.ints(5, 2), torch.tensor([0, 5, 1]), after=good)
                ctx.run(other, ctx.ints(4, 3))


_outside()


def _assertions() -> None:
    """Assertions on values before, between and after other computations."""

    def first(x: Tensor) -> Tensor:
        torch.ops.aten._assert_async.msg((x > 0).all(), "All are to be positive.")
        return x * 2 - 1

    def between(x: Tensor) -> Tensor:
        y = x.cumsum(0)
        torch.ops.aten._assert_async.msg(y[-1] > 0, "The sum is to be positive.")
        return y.flip(0)

    def last(x: Tensor) -> Tensor:
        y = (x * x + x).sum()
        torch.ops.aten._assert_async.msg(x.amax() >= 1, "One is to be positive.")
        return y

    for fn in (first, between, last):

        @errors("C1", "C2", name=f"assertion-on-values-{fn.__name__}")
        def body(ctx: Context, fn: Any = fn) -> None:
            go = ctx.compile(fn)
            for call in ctx.rounds():
                ctx.run(go, ctx.ints(5, low=1))
                raised(ctx, f"call {call}", go, ctx.ints(5, low=-3, high=0))


_assertions()


@errors("C2", "gradients.C1", profile="training")
def exception_in_backward(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x * x).relu())
    for call in ctx.rounds():
        x = ctx.ints(4).requires_grad_()
        result = go(x)
        raised(ctx, f"call {call}", lambda f=result: torch.autograd.backward([f], [torch.ones(5)]))
        ctx.backward([ctx.run(go, x)], [x])
