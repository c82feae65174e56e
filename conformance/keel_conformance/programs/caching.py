"""Contract programs of what a backend may keep from one call to the next, and what is another at each."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .context import Context
from .program import Chapter
from .rewrites import special

graphs, random, arguments = Chapter("graphs"), Chapter("random"), Chapter("arguments")
calls, scalars = Chapter("calls"), Chapter("scalars")


@calls("C1", "graphs.C1")
def masks_that_are_all_true_at_first(ctx: Context) -> None:
    go = ctx.compile(
        lambda x, c: (
            torch.where(c, x * 2, -x),
            x.masked_fill(c, 7),
            x.masked_fill(~c, 5) + 1,
            torch.where(~c, x, 0).sum(0),
        )
    )
    for call in ctx.rounds():
        c = ctx.bools(5, 7) | (call == 0)
        ctx.run(go, ctx.ints(5, 7), c if call != 1 else torch.zeros_like(c))


@calls("C1", "graphs.C1")
def arguments_that_are_zero_or_one_at_first(ctx: Context) -> None:
    """What folds for the values of the first call does not for later ones."""
    go = ctx.compile(
        lambda x, s, t: (x * s + t, x * t, (x + t) * s, torch.where(t > 0, x, -x), s - t, x[:, :3] @ t[:3])
    )
    for call in ctx.rounds():
        s, t = ctx.ints(7), ctx.ints(7)
        ctx.run(go, ctx.ints(5, 7), s if call else torch.ones_like(s), t if call else torch.zeros_like(t))


@calls("C1", "aliases.C1", smoke=True)
def constants_that_the_caller_writes_to(ctx: Context) -> None:
    """What depends on no argument is the caller's, too, once it is given."""
    go = ctx.compile(
        lambda x: (
            x + 1,
            torch.zeros(3, dtype=x.dtype),
            torch.arange(4, device=x.device),
            torch.full((2, 2), 5),
            torch.ones(3, dtype=x.dtype) + torch.arange(3, device=x.device),
        )
    )
    for _ in ctx.rounds():
        for result in ctx.run(go, ctx.ints(3)):
            result.fill_(9)


@calls("C1")
def literals_beside_results_of_their_type(ctx: Context) -> None:
    """A tensor in the program's text has its numbers at every call."""
    go = ctx.compile(lambda x: (x + torch.tensor([1, 2, 4], dtype=x.dtype, device=x.device), x * 2))
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(3))


@arguments("C1", "calls.C1")
def in_one_memory_at_first(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a - b * 2, a.sum(0) - b.sum(1), torch.maximum(a, b.t())))
    for call in ctx.rounds():
        x = ctx.ints(5, 5)
        ctx.run(go, x, ctx.ints(5, 5) if call else x.view(5, 5))


@arguments("C1", "calls.C1", smoke=True)
def beside_each_other_at_first(ctx: Context) -> None:
    """Pieces of one memory, in order and not, and then in memories of their own."""
    go = ctx.compile(lambda a, b: (torch.cat([a, b]), torch.stack([a, b]).flip(0), a - b))
    for call in ctx.rounds():
        x = ctx.ints(10, 4)
        a, b = (x[:5], x[5:]) if call == 0 else (x[5:], x[:5])
        ctx.run(go, *((a, b) if call < 2 else (a.clone(), b.clone())))


arguments.function(
    "with-their-conjugate-outstanding",
    ["C1", "dtypes.C1"],
    lambda x, y: (x * 2, x + y, x.sum(0), torch.view_as_real(x * 1), y - 1, y.t().contiguous()),
    lambda ctx: [
        torch.complex(ctx.ints(4, 4), ctx.ints(4, 4)).conj(),
        torch.complex(ctx.ints(4, 4), ctx.ints(4, 4)).conj().imag,
    ],
)
arguments.function(
    "windows-that-overlap",
    ["C1", "layouts.C2"],
    lambda x, y: (x + 1, x.sum(1), x.t() * 2, y.flip(0), y.amax(1) - y.sum(0)[0], x.reshape(-1)[3:]),
    lambda ctx: [ctx.ints(20).unfold(0, 4, 2), ctx.ints(24).as_strided((5, 5), (2, 3), 1)],
)
arguments.function(
    "twelve-of-one-type",
    ["C1"],
    lambda *xs: tuple(x * 2 - k for k, x in enumerate(xs)),
    lambda ctx: [ctx.ints(3) for _ in range(12)],
)


PLAIN = {
    "pointwise": lambda x, k: (x + k, (x * 2).relu()),
    "folded": lambda x, k: (x.sum(0) - k, x.amax(1)),
    "moved": lambda x, k: (x.t().contiguous(), torch.cat([x, x + k]), torch.full((3,), k, device=x.device)),
}


def _plain() -> None:
    for name, fn in PLAIN.items():

        @calls("C1", "aliases.C1", name=f"results-that-outlive-their-program-{name}")
        def outlived(ctx: Context, fn: Callable[[Tensor, int], Any] = fn) -> None:
            """A program goes, its results stay; they are looked at again at the end."""
            for call in ctx.rounds():
                go = ctx.compile(lambda x, k=call: fn(x, k))
                ctx.run(go, ctx.ints(4, 5))
                del go
                torch.compiler.reset()
                gc.collect()

        @calls("C1", "models.C3", name=f"written-under-another-name-{name}")
        def written(ctx: Context, fn: Callable[[Tensor, int], Any] = fn) -> None:
            """By the caller, so that neither address nor version tells."""
            go, memory = ctx.compile(lambda x: fn(x, 2)), ctx.ints(5, 4)
            for _ in ctx.rounds():
                ctx.run(go, memory.data)
                memory.copy_(ctx.ints(5, 4))


_plain()


@calls("C1", "training.C1", profile="training")
def parameters_cast_before_and_after_a_step(ctx: Context) -> None:
    """Smaller floats of parameters that are updated in place."""
    layer = ctx.integer_params(nn.Linear(6, 5))
    weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
    go = ctx.compile(lambda x: x.to(torch.bfloat16) @ weight.to(torch.bfloat16).t() + bias.to(torch.bfloat16))
    for _ in ctx.rounds():
        with torch.no_grad():
            ctx.run(go, ctx.ints(4, 6))
            for p in layer.parameters():
                p.add_(ctx.ints(*p.shape, low=1, high=3))


@calls("C1", "shapes.C1")
def numbers_made_of_sizes(ctx: Context) -> None:
    go = ctx.compile(
        lambda x: (
            x * x.shape[0],
            x / x.shape[0],
            x + x.numel(),
            torch.full((3,), x.shape[0]),
            x.sum(0) / (x.shape[0] // 2),
            x - x.shape[0] // 3,
            x[: x.shape[0] // 2] * -x.shape[0],
        ),
        dynamic=True,
    )
    for call in range(4):
        ctx.run(go, ctx.ints((8, 4, 16, 2)[call], 5))


@random("C2")
def numbers_of_earlier_calls(ctx: Context) -> None:
    """None of them comes again: of 53 bits, two of 8000 are equal once in 10^8 runs."""
    for name, fn in (
        ("uniform", lambda x: torch.rand_like(x)),
        ("normal", lambda x: torch.randn_like(x)),
        ("several", lambda x: torch.cat([torch.rand_like(x[:999]), torch.rand_like(x[:999])])),
    ):
        go = ctx.compile(fn)
        x = torch.zeros(2000, dtype=torch.float64)
        torch.manual_seed(ctx.seed)
        before = [go(x).clone()]
        for call in ctx.rounds():
            drawn = go(x).clone()
            ctx.check(f"{name}, call {call}: other numbers", not torch.isin(drawn, torch.cat(before)).any())
            before.append(drawn)


# -- numbers -----------------------------------------------------------------------------------------------------------

scalars.function(
    "0-d-of-long-integers",
    ["C1", "dtypes.C3"],
    lambda x, s: (x + s, s - x, s * 2, torch.where(x > s, x, s)),
    lambda ctx: [ctx.indices(1 << 60, 5), ctx.indices(1 << 60) + (1 << 50)],
)
scalars.function(
    "integers-of-more-than-53-bits",
    ["C2", "dtypes.C3"],
    lambda x: (
        x + (2**53 + 1),
        (2**60 + 3) - x,
        x * (2**53 + 1),
        x == 2**53 + 1,
        x.clamp(max=2**55 + 1),
        torch.where(x > 0, 2**54 + 1, x),
        x % (2**53 + 1),
        torch.full_like(x, 2**61 + 1),
        x.masked_fill(x > 0, 2**59 + 1),
        x // (2**53 + 1),
    ),
    lambda ctx: [ctx.indices(1 << 60, 7) - (1 << 59)],
)
scalars.function(
    "zeros-of-both-signs",
    ["C2", "graphs.C1"],
    lambda x: (
        (x + 0.0).reciprocal(),
        (x + -0.0).reciprocal(),
        (x * 0.0).reciprocal(),
        (x * -0.0).reciprocal(),
        torch.full_like(x, 0.0).reciprocal(),
        torch.full_like(x, -0.0).reciprocal(),
        x.masked_fill(x > 0, 0.0).reciprocal(),
        x.masked_fill(x > 0, -0.0).reciprocal(),
        torch.copysign(x, 0.0),
        torch.copysign(x, -0.0),
    ),
    lambda ctx: [special(ctx, 5, 7)],
)
scalars.function(
    "quotients-by-numbers",
    ["C2", "graphs.C1"],
    lambda x: (
        x // 49.0,
        x // 41,
        (x * 8) // 0.5,
        torch.div(x, 47.0, rounding_mode="floor"),
        x % 49.0,
        x.fmod(41.0),
        x // -49.0,
    ),
    lambda ctx: [ctx.ints(7, 9, low=-9, high=10) * 49 * 41 * 47],
)
scalars.function(
    "quotients-below-the-normal-numbers",
    ["C2", "graphs.C1"],
    lambda x: (x * 2.0**-130 / (x * 0 + 2.0**-130), x / 2.0**-120, x * 2.0**-127 / 2.0**-127),
    lambda ctx: [ctx.ints(5, 7, dtype=torch.float32)],
)


def softmax_of_sums(x: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, ...]:
    """What is the same along the dimension goes, and what is not stays."""
    return (
        torch.softmax(x + row, 1),
        torch.softmax(x + column[:, None], 1),
        torch.softmax(x + row, 0),
        torch.log_softmax(x - column[:, None], 0),
        torch.softmax(x * 2 - row, 1),
        torch.logsumexp(x + row, 0),
        torch.softmax(x.masked_fill(row > 0.5, -1e4), 1),
    )


graphs.function(
    "softmax-of-sums",
    ["C1"],
    softmax_of_sums,
    lambda ctx: [ctx.normal(6, 6), ctx.normal(6), ctx.normal(6)],
    exact=False,
)
