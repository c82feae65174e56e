"""Contract programs about memory: what programs write to, what are views of what, what results share."""

from __future__ import annotations

import torch
from torch import Tensor

from .context import Context
from .program import Chapter

mutation, views, aliases = Chapter("mutation"), Chapter("views"), Chapter("aliases")

# -- writing to arguments ----------------------------------------------------------------------------------------------


def grid(ctx: Context) -> list[Tensor]:
    return [ctx.ints(5, 7)]


def two(ctx: Context) -> list[Tensor]:
    return [ctx.ints(5, 7), ctx.ints(5, 7)]


mutation.function("leaves-arguments-alone", ["C1"], lambda a, b: (a * b + 1, (a - b).relu()), two, smoke=True)
mutation.function("add", ["C2"], lambda x: x.add_(1), grid)
mutation.function("add-and-more", ["C2", "C3"], lambda x: (x * 2, x.add_(1), x * 2)[::2], grid, smoke=True)
mutation.function("writes-nothing-back", ["C1"], lambda x: x.clone().mul_(3), grid)
mutation.function("copy-into", ["C2"], lambda a, b: (a.copy_(b), b + a)[1], two)
mutation.function("fill-and-zero", ["C2"], lambda a, b: (a.fill_(2), b.zero_(), a + b)[2], two)
mutation.function("twice", ["C2", "C3"], lambda x: (x.add_(1).mul_(2), x.sum(1))[1], grid)
mutation.function("both-arguments", ["C2"], lambda a, b: (a.add_(b), b.sub_(a), a * b)[2], two)
mutation.function("swap", ["C2", "C3"], lambda a, b: swap(a, b), two)
mutation.function("row-of", ["C2", "C4", "C5"], lambda x: (x[1].add_(5), x.sum(0))[1], grid, smoke=True)
mutation.function("column-of", ["C2", "C4", "C5"], lambda x: (x[:, 2].mul_(3), x + 1)[1], grid)
mutation.function("every-second", ["C4", "C5"], lambda x: x[::2, 1::3].fill_(9), grid)
mutation.function(
    "transposed", ["C4"], lambda x: (x.t().add_(torch.arange(5.0, dtype=x.dtype, device=x.device)), x * 2)[1], grid
)
mutation.function("view-of-view", ["C4"], lambda x: (x.view(35)[3:20].view(17)[1::2].add_(1), x.clone())[1], grid)
mutation.function("base-seen-in-view", ["C4"], lambda x: view_then_write(x), grid)
mutation.function("assign-slice", ["C2", "C5"], lambda a, b: (a.__setitem__(slice(1, 3), b[2:4]), a + b)[1], two)
mutation.function("assign-masked", ["C2", "C5"], lambda a, b: (a.masked_fill_(b > 0, 8), a * 1)[1], two)
mutation.function(
    "assign-indexed",
    ["C2", "C5"],
    lambda x, i, v: (x.__setitem__(i, v), x.sum(0))[1],
    lambda ctx: [ctx.ints(6, 4), torch.tensor([4, 0, 3]), ctx.ints(3, 4)],
)
mutation.function(
    "index-add",
    ["C2"],
    lambda x, i, v: x.index_add_(0, i, v) + 1,
    lambda ctx: [ctx.ints(6, 4), ctx.indices(6, 9), ctx.ints(9, 4)],
)
mutation.function(
    "scatter",
    ["C2"],
    lambda x, i, v: x.scatter_(1, i, v) * 2,
    lambda ctx: [ctx.ints(4, 6), torch.tensor([[0, 5], [1, 2], [3, 0], [2, 4]]), ctx.ints(4, 2)],
)
mutation.function(
    "put-accumulated",
    ["C2"],
    lambda x, i, v: x.index_put_((i,), v, accumulate=True),
    lambda ctx: [ctx.ints(5), ctx.indices(5, 11), ctx.ints(11)],
)
mutation.function(
    "integers", ["C2"], lambda x: (x.add_(3).bitwise_and_(5), x + 1)[1], lambda ctx: [ctx.ints(9, dtype=torch.int64)]
)
mutation.function("flags", ["C2"], lambda a, b: (a.logical_and_(b), ~a)[1], lambda ctx: [ctx.bools(9), ctx.bools(9)])
mutation.function(
    "scalar-0-d",
    ["C2"],
    lambda x, step: (step.add_(1), x * step)[1],
    lambda ctx: [ctx.ints(4), torch.tensor(2.0, dtype=ctx.dtype)],
)
mutation.function(
    "scalar-0-d-of-float64",
    ["C2"],
    lambda total, x: (total.add_(x.sum()), x * 2)[1],
    lambda ctx: [torch.tensor(2.0, dtype=torch.float64), ctx.ints(4)],
)
mutation.function(
    "scalar-0-d-read-and-written",
    ["C2", "C3"],
    lambda total, x: (total * 2, total.mul_(3), x * total)[::2],
    lambda ctx: [torch.tensor(2.0, dtype=torch.float64), torch.tensor(5.0, dtype=torch.float64)],
)
mutation.function("relu-in-place", ["C2"], lambda x: torch.nn.functional.relu(x, inplace=True).sum(), grid)
mutation.function("out-keyword", ["C2"], lambda a, b: torch.add(a, 1, out=b), two)
mutation.function("with-gaps", ["C2", "C5"], lambda x: (x.mul_(2), x - 1)[1], lambda ctx: [ctx.ints(6, 9)[1:5, 2:7]])
mutation.function(
    "columns-with-gaps", ["C2", "C5"], lambda x: (x.sub_(3), x.sum())[1], lambda ctx: [ctx.ints(6, 9).t()[1::2, ::2]]
)
mutation.function(
    "cast-into", ["C2"], lambda a, b: (a.copy_(b), a + 1)[1], lambda ctx: [ctx.ints(8), ctx.ints(8, dtype=torch.int32)]
)
mutation.function(
    "running-maximum",
    ["C2"],
    lambda m, x: (m.copy_(torch.maximum(m, x.amax(0))), x - m)[1],
    lambda ctx: [ctx.ints(7), ctx.ints(5, 7)],
)
mutation.function("from-its-other-end", ["C2", "C3"], lambda x: (x.copy_(x.flip(0) + 1), x.add_(x.roll(1, 1)))[1], grid)
mutation.function(
    "from-its-other-half",
    ["C2", "C3"],
    lambda x: (x[:3].add_(x[3:] * 2), x[1:4].sub_(x.sum(0)), x * 1)[2],
    lambda ctx: [ctx.ints(6, 5)],
)
mutation.function(
    "from-its-columns",
    ["C2", "C3"],
    lambda x: (x.copy_(x.t() + x), x.sub_(x.amax(1)), x.cumsum(0))[2],
    lambda ctx: [ctx.ints(6, 6)],
)
mutation.function(
    "from-what-it-sums-to", ["C2", "C3"], lambda x: (x.sub_(x.sum(0)), x.copy_(x.cumsum(1)), x.amax(0))[2], grid
)
mutation.function("turned", ["C7"], lambda x: (x.t_(), x + 1)[1], grid)
mutation.function("one-more-dimension", ["C7"], lambda x: (x.unsqueeze_(1), x * 2)[1], grid)


def swap(a: Tensor, b: Tensor) -> Tensor:
    was = a.clone()
    a.copy_(b)
    b.copy_(was)
    return a - b


def view_then_write(x: Tensor) -> Tensor:
    row = x[2]
    x.mul_(2)
    return row + 1


@mutation("C6", "C2", smoke=True)
def overlapping_arguments(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a.add_(1), b * 2)[1])
    for _ in ctx.rounds():
        base = ctx.ints(12)
        ctx.run(go, base[:8], base[4:])
        ctx.record("base", base)


@mutation("C6")
def same_tensor_twice(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a.mul_(2), a + b)[1])
    for call in ctx.rounds():
        x, y = ctx.ints(4, 3), ctx.ints(4, 3)
        ctx.run(go, x, x if call % 2 == 0 else y)


@mutation("C6", "C4")
def base_and_view(ctx: Context) -> None:
    def fn(base: Tensor, view: Tensor) -> Tensor:
        view.add_(1)
        return base.sum(0) * 2

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        base = ctx.ints(4, 6)
        ctx.run(go, base, base.t()[1:3])


@mutation("C2", "C3")
def a_list_of_tensors(ctx: Context) -> None:
    def fn(xs: list[Tensor]) -> Tensor:
        for k, x in enumerate(xs):
            x.add_(k)
        return xs[0] + xs[-1]

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        ctx.run(go, [ctx.ints(3), ctx.ints(3), ctx.ints(3)])


@mutation("C2")
def the_same_argument_over_calls(ctx: Context) -> None:
    """What one call writes the next one reads."""
    go = ctx.compile(lambda x, y: (x.add_(y), x.sum())[1])
    x = ctx.ints(6)
    for _ in ctx.rounds():
        ctx.run(go, x, ctx.ints(6))


@mutation("C2", "gradients.C1")
def write_beside_gradients(ctx: Context) -> None:
    def fn(buffer: Tensor, x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        buffer.copy_(y.detach()).add_(1)
        return y * w

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        w, buffer = ctx.ints(5).requires_grad_(), ctx.ints(5)
        ctx.backward([ctx.run(go, buffer, ctx.ints(5), w)], [w])


# -- views -------------------------------------------------------------------------------------------------------------


def _strided_between(x: Tensor) -> Tensor:
    """Views whose offset is one in the storage, of results that are in memory at the same time."""
    small, large = x @ x.t(), x.t() @ x
    return small.as_strided((3, 4), (5, 1), 1) @ x[:4] + large.as_strided((3, 1), (14, 1), 2)


views.function("transpose", ["C1", "C2"], lambda x: x.t(), grid, smoke=True)
views.function("slices", ["C1", "C2"], lambda x: (x[1:4:2], x[:, -1], x[2]), grid)
views.function("reshapes", ["C1", "C2"], lambda x: (x.view(7, 5), x.reshape(-1), x.unsqueeze(1)), grid)
views.function("view-of-view-of-view", ["C2"], lambda x: x[1:].t()[::2].unsqueeze(0)[..., 1:], grid, smoke=True)
views.function("expanded", ["C2"], lambda x: x.unsqueeze(1).expand(5, 3, 7), grid)
views.function("diagonal", ["C1", "C2"], lambda x: x.diagonal(1), grid)
views.function("unfolded", ["C2"], lambda x: x.unfold(1, 3, 2), grid)
views.function("as-strided", ["C2"], lambda x: x.as_strided((3, 4), (7, 2), 1), lambda ctx: [ctx.ints(5, 7)])
views.function("as-strided-between", ["C2"], _strided_between, grid)
views.function("pieces", ["C1", "C2"], lambda x: (*x.chunk(3, 1), *x.split(2), *x.unbind()[:2]), grid)
views.function("of-a-view", ["C1", "C2"], lambda x: x[1:, ::2], lambda ctx: [ctx.ints(9, 8).t()[1:6, 1:]])
views.function("of-a-result", ["C2"], lambda x: (x + 1).t()[1:], grid)
views.function("permuted", ["C1", "C2"], lambda x: x.permute(2, 0, 1).movedim(0, 1), lambda ctx: [ctx.ints(2, 3, 4)])
views.function("copies", ["C3"], lambda x: (x.clone(), x.t().contiguous(), x.flip(0), x.repeat(2, 1), +x * 1), grid)
views.function("reshape-that-copies", ["C3"], lambda x: x.t().reshape(-1), grid)
views.function(
    "real-and-imaginary",
    ["C1"],
    lambda x: (torch.view_as_real(x), x.real),
    lambda ctx: [torch.complex(ctx.ints(4), ctx.ints(4))],
)
views.function("bits", ["C1"], lambda x: x.view(torch.int32), lambda ctx: [ctx.ints(6, dtype=torch.float32)])


@views("C1", smoke=True)
def written_after_the_call(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x[1:], x.t(), x * 2))
    for _ in ctx.rounds():
        x = ctx.ints(4, 3)
        view, turned, fresh = ctx.run(go, x)
        view.add_(10)
        ctx.record("argument after a write to its view", x)
        x.zero_()
        ctx.record("views after a write to the argument", [view, turned])
        ctx.record("copy after a write to the argument", fresh, "contract.views.C3")


@views("C3")
def copy_written_after_the_call(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x.contiguous(), x.t().contiguous(), x.to(torch.float16)))
    for _ in ctx.rounds():
        x = ctx.ints(4, 3)
        results = ctx.run(go, x)
        results[1].add_(1)
        results[2].add_(1)
        ctx.record("argument", x)


@views("C1", "mutation.C2")
def view_of_what_is_written(ctx: Context) -> None:
    def fn(x: Tensor) -> Tensor:
        x.add_(1)
        return x[1:3]

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        x = ctx.ints(5, 2)
        view = ctx.run(go, x)
        view.mul_(2)
        ctx.record("argument", x)


@views("C1", "gradients.C1")
def view_with_gradient(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x.t(), (x * x).sum(0)))
    for _ in ctx.rounds():
        x = ctx.ints(3, 4).requires_grad_()
        ctx.backward(ctx.run(go, x), [x])


# -- results that share memory -----------------------------------------------------------------------------------------

aliases.function("argument-returned", ["C2", "C4"], lambda x: (x, x * 2), grid)
aliases.function("argument-among-results", ["C2"], lambda a, b: (b, a + b, a), two, smoke=True)
aliases.function("result-twice", ["C3", "C1"], lambda x: (y := x * 2, y), grid, smoke=True)
aliases.function("result-and-its-view", ["C1"], lambda x: (y := x + 1, y.t(), y[1]), grid, smoke=True)
aliases.function("two-views-of-a-result", ["C1"], lambda x: ((y := x * 3)[:2], y[1:]), grid)
aliases.function("two-views-of-an-argument", ["C4", "C1"], lambda x: (x[:3], x[2:]), grid)
aliases.function("equal-but-separate", ["C1"], lambda x: (x + 1, x + 1), grid, smoke=True)
aliases.function("written-argument-returned", ["C2"], lambda x: x.add_(1), grid)
aliases.function("detached", ["C1", "C4"], lambda x: (x.detach(), (y := x * 2), y.detach()), grid)
aliases.function("contiguous-of-contiguous", ["C4"], lambda x: (x.contiguous(), x + 1), grid)
aliases.function("cast-to-its-own-dtype", ["C4"], lambda x: (x.to(x.dtype), x.to(x.dtype, copy=True)), grid)
aliases.function("nothing-in-common", ["C1", "C4"], lambda x: (x * 1, x + 0, x.clone()), grid)
aliases.function("constants", ["C1"], lambda x: (torch.zeros(3), torch.zeros(3), x + torch.ones(7)), grid)


@aliases("C1")
def written_to_afterwards(ctx: Context) -> None:
    go = ctx.compile(lambda x: ((y := x * 2), y[1:], x + 3, x + 3))
    for _ in ctx.rounds():
        results = ctx.run(go, ctx.ints(4, 2))
        results[0].add_(5)
        results[2].add_(7)
        ctx.record("results after writes", results)


@aliases("C4", "calls.C2")
def results_given_back_as_arguments(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a + b, a - b))
    a, b = ctx.ints(6), ctx.ints(6)
    for _ in ctx.rounds():
        a, b = ctx.run(go, a.remainder(5), b)
