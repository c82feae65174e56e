"""Contract programs of what stands around a compiled program: losses that are scaled before they are differentiated,
forward passes that wait for each other's gradients, drawn masks that are wanted again, one memory given twice, programs
alike but for an order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .context import Context
from .gradients import two
from .program import Chapter
from .randomness import recomputations
from .rewrites import in_turns

graphs, random, gradients = Chapter("graphs"), Chapter("random"), Chapter("gradients")
mutation, training = Chapter("mutation"), Chapter("training")

# -- losses ------------------------------------------------------------------------------------------------------------


@gradients("C1")
def losses_that_are_scaled(ctx: Context) -> None:
    """By what keeps small gradients, by how many batches there are, and by a weight that is negative."""
    go = ctx.compile(lambda a, b: ((a - b).square().sum(), (a * b).relu().sum(1).amax()))
    for _ in ctx.rounds():
        for scale in (64.0, 0.25, -2.0):
            a, b = (x.requires_grad_() for x in two(ctx))
            first, second = ctx.run(go, a, b)
            (first * scale + second / 2).backward()
            for name, x in (("a", a), ("b", b)):
                ctx.gradient(f"gradient of {name} by {scale}", x)


@gradients("C1", "C4")
def losses_of_two_programs(ctx: Context) -> None:
    """One is taken from the other: what comes into the second is -1."""
    first = ctx.compile(lambda x, w: (x @ w).relu().sum())
    second = ctx.compile(lambda w: w.square().sum())
    for _ in ctx.rounds():
        x, w = ctx.ints(4, 5).requires_grad_(), ctx.ints(5, 3).requires_grad_()
        (ctx.run(first, x, w) * 3 - ctx.run(second, w)).backward()
        for name, leaf in (("x", x), ("w", w)):
            ctx.gradient(f"gradient of {name}", leaf)


@training("C1", "gradients.C1")
def scaled_losses(ctx: Context) -> None:
    """As with a gradient scaler: the loss is 64 times as large, and gradients are divided again."""
    module = ctx.integer_params(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(module.parameters(), 0.125)
    go = ctx.compile(lambda x, t: (module(x) - t).square().sum())
    for call in range(min(ctx.calls, 4)):
        optimizer.zero_grad()
        loss = ctx.run(go, ctx.ints(4, 4, low=-1, high=2), ctx.ints(4, 3, low=-1, high=2))
        (loss * 64).backward()
        for p in module.parameters():
            assert p.grad is not None
            p.grad.div_(64)
        optimizer.step()
        ctx.state(f"step{call}", module)


# -- passes that wait --------------------------------------------------------------------------------------------------


@gradients("C1", "C4")
def one_program_twice_in_a_loss(ctx: Context) -> None:
    """As twins have it: both passes are over before either's gradients are asked for."""
    go = ctx.compile(lambda x, w: ((x @ w).relu() * w[0]).cumsum(0))
    for _ in ctx.rounds():
        a, b, w = (ctx.ints(*shape).requires_grad_() for shape in ((4, 5), (4, 5), (5, 3)))
        ctx.backward([ctx.run(go, a, w) - ctx.run(go, b, w) * 2], [a, b, w])


@gradients("C4")
def three_passes_of_which_one_is_dropped(ctx: Context) -> None:
    go = ctx.compile(lambda x, w: (x * w).relu() * w + x.square())
    for _ in ctx.rounds():
        w = ctx.ints(6).requires_grad_()
        first, dropped, last = (ctx.run(go, ctx.ints(6), w) for _ in range(3))
        ctx.record("first", torch.autograd.grad(first, [w], ctx.ints(6)), strides=False)
        del dropped
        ctx.record("last", torch.autograd.grad(last, [w], ctx.ints(6)), strides=False)


# -- masks that are wanted again ---------------------------------------------------------------------------------------


@random("C4", "C3", profile="training")
def recomputed_noise(ctx: Context) -> None:
    """The slope of a product with noise is the noise; of powers of two it is so to the last digit."""
    for call, x, result in recomputations(ctx, lambda x: torch.rand_like(x) * x, lambda: torch.exp2(ctx.ints(50, 40))):
        assert x.grad is not None
        ctx.check(f"call {call}: the slope is the noise", torch.equal(x.grad * x, result))


@random("C4", "C3", profile="training")
def recomputed_blocks_in_a_row(ctx: Context) -> None:
    """Three of them, each with a mask of its own, of which all have to be set for a gradient."""
    for call, x, result in recomputations(ctx, lambda x: F.dropout(x, 0.25) * 2, lambda: ctx.ints(50, 40, low=1), 3):
        assert x.grad is not None
        ctx.check(f"call {call}: gradient where the result is", ((x.grad != 0) == (result != 0)).all())


# -- one memory given twice --------------------------------------------------------------------------------------------


@mutation("C6", "C2")
def rows_of_one_memory(ctx: Context) -> None:
    """Each is read after another one was written to."""

    def fn(row: Tensor, rows: Tensor, base: Tensor) -> tuple[Tensor, ...]:
        base.mul_(2)
        first = row - 1
        rows.add_(3)
        return first, row * 2, base.sum(0)

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        base = ctx.ints(4, 6)
        ctx.run(go, base[2], base[1:3], base)
        ctx.record("base", base)


@mutation("C6", "C4")
def one_memory_in_two_shapes(ctx: Context) -> None:
    go = ctx.compile(lambda flat, square: (flat[::2].mul_(-1), square.amax(1), square.t()[1] + flat[:4])[1:])
    for _ in ctx.rounds():
        base = ctx.ints(16)
        ctx.run(go, base, base.view(4, 4))
        ctx.record("base", base)


# -- programs alike ----------------------------------------------------------------------------------------------------

ORDERS: tuple[Callable[[Tensor, Tensor], Any], ...] = (  # a is read first in each, and is the first argument of all
    lambda a, b: (a + b, (a - b) * a, torch.where(a > b, a, b), a.relu() - b),
    lambda a, b: (a + b, (b - a) * a, torch.where(a > b, a, b), a.relu() - b),
    lambda a, b: (a + b, (a - b) * b, torch.where(a > b, b, a), a.relu() - b),
    lambda a, b: (a + b, (a - b) * a, torch.where(b > a, a, b), b.relu() - a),
)


@graphs("C1", "models.C1", name="programs-alike-but-for-their-operands")
def _operands(ctx: Context) -> None:
    in_turns(ctx, [ctx.compile(lambda x, fn=fn: fn(x, x.t() * 2)) for fn in ORDERS], 5, 5)


@gradients("C1", "models.C1")
def programs_alike_but_for_their_operands(ctx: Context) -> None:
    programs = [ctx.compile(fn) for fn in ORDERS]
    for _ in ctx.rounds():
        for go in programs:
            a, b = (x.requires_grad_() for x in two(ctx))
            ctx.backward(ctx.run(go, a, b), [a, b])


graphs.function(
    "nothing-beside-something",
    ["C1"],
    lambda e, x: (
        x * 2,
        torch.cat([e, x, e]),
        e.sum(0) + x,
        x @ e.t(),
        e.t() @ e,
        F.pad(e, (0, 0, 1, 2), value=3),
        e.new_ones(4),
        e.any() | (x > 0),
        torch.stack([x, x - 1]),
        e + x[:1],
        x.index_add(0, e[:, 0].long(), e),
    ),
    lambda ctx: [ctx.ints(0, 3), ctx.ints(2, 3)],
)
