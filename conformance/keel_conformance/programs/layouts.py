"""Contract programs about strides: of results, of arguments, of incoming gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .context import Context
from .program import Chapter

layouts = Chapter("layouts")


def image(ctx: Context) -> list[Tensor]:
    return [ctx.ints(2, 8, 5, 6).to(memory_format=torch.channels_last)]


def turned(ctx: Context) -> list[Tensor]:
    return [ctx.ints(7, 5).t()]


layouts.function("pointwise-of-transposed", ["C1", "C2"], lambda x: x * 2 + 1, turned, smoke=True)
layouts.function(
    "pointwise-of-permuted", ["C1", "C2"], lambda x: x.relu() - 1, lambda ctx: [ctx.ints(3, 4, 5).permute(2, 0, 1)]
)
layouts.function(
    "two-layouts",
    ["C1", "C2"],
    lambda a, b: (a + b, b + a),
    lambda ctx: [ctx.ints(5, 7), ctx.ints(7, 5).t()],
    smoke=True,
)
layouts.function(
    "channels-last", ["C1", "C2"], lambda x: (x + 1, x.relu(), x * x.amax((2, 3), keepdim=True)), image, smoke=True
)
layouts.function(
    "channels-last-reduced", ["C1"], lambda x: (x.sum(1), x.amax((0, 2)), x.sum((2, 3), keepdim=True)), image
)
layouts.function(
    "channels-last-3d",
    ["C1"],
    lambda x: x * 2,
    lambda ctx: [ctx.ints(2, 3, 4, 2, 5).to(memory_format=torch.channels_last_3d)],
)
layouts.function(
    "channels-last-asked-for",
    ["C1"],
    lambda x: (x * 2).contiguous(memory_format=torch.channels_last),
    lambda ctx: [ctx.ints(2, 3, 4, 5)],
)
layouts.function("channels-last-joined", ["C1"], lambda x: torch.cat([x, x + 1], 1), image)
layouts.function(
    "channels-last-convolved",
    ["C1", "C2"],
    lambda x, w: F.conv2d(x, w, padding=1),
    lambda ctx: [*image(ctx), ctx.ints(4, 8, 3, 3)],
)
layouts.function(
    "expanded", ["C1", "C2"], lambda x: (x + 1, x.sum(0)), lambda ctx: [ctx.ints(1, 7).expand(5, 7)], smoke=True
)
layouts.function(
    "expanded-against-whole",
    ["C1", "C2"],
    lambda a, b: a * b,
    lambda ctx: [ctx.ints(5, 1, 7).expand(5, 3, 7), ctx.ints(5, 3, 7)],
    smoke=True,
)
layouts.function(
    "expanded-beside-others",
    ["C2"],
    lambda a, b, c: (a - b, b * c, (a + c).sum(0), c.amax(1)),
    lambda ctx: [ctx.ints(6, 6), ctx.ints(6).expand(6, 6), ctx.ints(6, 1).expand(6, 6)],
)
layouts.function(
    "expanded-in-the-middle",
    ["C1", "C2"],
    lambda x: (x.sum(0), x.cumsum(2), x.relu(), x.argmax(2)),
    lambda ctx: [ctx.ints(4, 1, 5).expand(4, 3, 5)],
)
layouts.function(
    "expanded-and-taken-from",
    ["C2"],
    lambda x, i: (x[i], x.index_select(1, i), x.flip(1) * 2, x.t() + 1),
    lambda ctx: [ctx.ints(5, 1).expand(5, 5), ctx.indices(5, 7)],
)
layouts.function(
    "expanded-twice", ["C2"], lambda x: (x * 2, x.sum((0, 1)), x + x.t()), lambda ctx: [ctx.ints(1, 1).expand(4, 4)]
)
layouts.function("gaps", ["C1", "C2"], lambda x: (x * 2, x.sum(1)), lambda ctx: [ctx.ints(9, 12)[1:7, 3:10]])
layouts.function("steps", ["C1", "C2"], lambda x: (x + 1).t(), lambda ctx: [ctx.ints(9, 12)[::2, 1::3]])
layouts.function("offset-of-one", ["C2"], lambda x: (x * 3, x.amax()), lambda ctx: [ctx.ints(130)[1:]], smoke=True)
layouts.function("flipped", ["C1", "C2"], lambda x: x.flip(1) - x, lambda ctx: [ctx.ints(5, 9)])
layouts.function(
    "matmul-of-transposed",
    ["C1", "C2"],
    lambda a, b: (a @ b, b.t() @ a.t()),
    lambda ctx: [ctx.ints(6, 5).t(), ctx.ints(3, 6).t()],
)
layouts.function(
    "matmul-of-expanded", ["C2"], lambda a, b: a @ b, lambda ctx: [ctx.ints(1, 4, 5).expand(3, 4, 5), ctx.ints(3, 5, 2)]
)
layouts.function(
    "like", ["C1"], lambda x: (torch.zeros_like(x), torch.ones_like(x), x.clone(), torch.full_like(x, 3)), turned
)
layouts.function("softmax-shaped", ["C1", "C2"], lambda x: x - x.amax(0, keepdim=True), turned)
layouts.function("empty-and-strided", ["C1"], lambda x: (x + 1, x.t(), x.sum(1)), lambda ctx: [ctx.ints(0, 4).t()])
layouts.function(
    "one-element-dimensions",
    ["C1"],
    lambda x: (x + 1, x.transpose(0, 2)),
    lambda ctx: [ctx.ints(1, 6, 1).transpose(0, 1)],
)
layouts.function("cumulative", ["C1", "C2"], lambda x: (x.cumsum(0), x.cumsum(1)), turned)
layouts.function(
    "gathered",
    ["C1", "C2"],
    lambda x, i: (x[i], x.gather(1, i[:, None] % 5)),
    lambda ctx: [ctx.ints(5, 7).t(), ctx.indices(7, 7)],
)
layouts.function(
    "types",
    ["C4"],
    lambda x, i: (x > 0, x.to(torch.float64), i + x, i // 2, x.argmax(1), x.sum()),
    lambda ctx: [ctx.ints(3, 4), ctx.ints(3, 4, dtype=torch.int32)],
)

Tangent = Callable[[Tensor], Tensor]
TANGENTS: dict[str, Callable[[Context], Tangent]] = {
    "transposed": lambda ctx: lambda x: ctx.ints(*reversed(x.shape), low=-2, high=3).permute(*reversed(range(x.dim()))),
    "expanded": lambda ctx: lambda x: ctx.ints(1, *x.shape[1:], low=-2, high=3).expand(x.shape),
    "a-number": lambda ctx: lambda x: torch.ones((), dtype=x.dtype).expand(x.shape),
    "with-gaps": lambda ctx: lambda x: ctx.ints(*x.shape, 2, low=-2, high=3)[..., 1],
    "channels-last": lambda ctx: lambda x: ctx.ints(*x.shape, low=-2, high=3).to(memory_format=torch.channels_last),
}


def _tangents() -> None:
    for name, make in TANGENTS.items():

        @layouts(
            "C3",
            "gradients.C1",
            name=f"incoming-gradient-{name}",
            profile="training",
            smoke=name in ("expanded", "transposed"),
        )
        def incoming(ctx: Context, make: Callable[[Context], Tangent] = make) -> None:
            go = ctx.compile(lambda a, b: (a * b).relu() + a)
            for call in ctx.rounds():
                a, b = ctx.ints(2, 3, 4, 5).requires_grad_(), ctx.ints(3, 4, 5).requires_grad_()
                tangent = make(ctx) if call else None  # first that of the result's own layout
                ctx.backward([ctx.run(go, a, b)], [a, b], tangent, "contract.layouts.C3")


_tangents()


@layouts("C3", "C1", profile="training")
def incoming_gradient_through_convolution(ctx: Context) -> None:
    module = ctx.integer_params(nn.Conv2d(3, 4, 3, padding=1))
    go = ctx.compile(lambda x: module(x))
    for call in ctx.rounds():
        module.zero_grad()
        x = ctx.ints(2, 3, 5, 5).requires_grad_()
        make = list(TANGENTS.values())[call % len(TANGENTS)]
        ctx.backward([ctx.run(go, x)], [x, *module.parameters()], make(ctx), "contract.layouts.C3")


@layouts("C3", "gradients.C1", profile="training")
def sum_after_the_program(ctx: Context) -> None:
    """The gradient that ``sum`` sends is an expanded number."""
    go = ctx.compile(lambda x, w: (x @ w).relu())
    for _ in ctx.rounds():
        x, w = ctx.ints(4, 5).requires_grad_(), ctx.ints(5, 3).requires_grad_()
        ctx.run(go, x, w).sum().backward()
        ctx.gradient("x", x, "contract.layouts.C3")
        ctx.gradient("w", w, "contract.layouts.C3")


@layouts("C2", "calls.C1", smoke=True)
def another_layout_at_each_call(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x * 2, x.sum(1)))
    for call in ctx.rounds():
        x = ctx.ints(6, 6)
        ctx.run(go, [x, x.t(), x[:, :1].expand(6, 6)][call % 3])


def _at_each_call() -> None:
    """One program, arguments of the same sizes that lie otherwise each time."""
    for name, fn in (
        ("-and-reduced", lambda x: (x.amax(0), x.sum(1), x.cumsum(0))),
        ("-and-multiplied", lambda x: (x @ x.t(), x.t() @ x + 1)),
        ("-and-taken-from", lambda x: (x[torch.tensor([4, 0, 2], device=x.device)], x.flip(0), x[1:, 2:] - 1)),
        ("-and-written", lambda x: (x.clone().add_(1), x.reshape(-1) * 2)),
    ):

        @layouts("C2", "calls.C1", name=f"another-layout-at-each-call{name}")
        def body(ctx: Context, fn: Callable[[Tensor], object] = fn) -> None:
            go = ctx.compile(fn)
            for call in ctx.rounds():
                x = ctx.ints(6, 6)
                for view in (x, x.t(), ctx.ints(6, 12)[:, ::2], ctx.ints(7, 8)[1:, 1:-1])[call % 2 :]:
                    ctx.run(go, view)


_at_each_call()
