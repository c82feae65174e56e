"""Contract programs of collectives, between two processes: values, order, what is waited for, whose memory is whose."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .context import Context
from .process_group import SIZE, Body, Group, can_meet, ops, together, waited
from .program import Chapter

collectives = Chapter("collectives", hosted=True)
Made = Callable[[Group], Callable[..., Any]]
"""The function to compile, for a group."""
LATE = 0.15
"""Seconds that a peer comes late, where nothing is to be read before it comes."""


def group_of(*clauses: str, **more: Any) -> Callable[[Body], Body]:
    """Makes a program of the function below it, where there can be a group."""

    def declare(body: Body) -> Body:
        name = more.pop("name", "") or body.__name__
        if can_meet():
            collectives(*clauses, name=name.strip("_").replace("_", "-"), **more)(partial(together, body))
        return body

    return declare


def program(
    name: str,
    clauses: Sequence[str],
    made: Made,
    arguments: Callable[[Context], list[Tensor]],
    *,
    late: bool = False,
    without: tuple[str, ...] = (),
    dynamic: bool | None = None,
    **more: Any,
) -> None:
    """A function on fresh arguments at each call, after which both processes meet."""

    @group_of(*clauses, name=name, **more)
    def body(ctx: Context, group: Group) -> None:
        go = ctx.compile(made(group), without=without, dynamic=dynamic)
        for call in ctx.rounds():
            inputs = arguments(ctx)
            if late and group.rank:
                time.sleep(LATE)
            ctx.run(go, *inputs)
            group.meet(ctx, call)


def reduced(x: Tensor, group: Group, how: str = "sum") -> Tensor:
    """On its way: to be waited for."""
    result: Tensor = ops.all_reduce.default(x, how, group.name)
    return result


def grid(ctx: Context) -> list[Tensor]:
    return [ctx.ints(4, 3)]


def two(ctx: Context) -> list[Tensor]:
    return [ctx.ints(4, 3), ctx.ints(4, 3)]


def growing(ctx: Context) -> list[Tensor]:
    return [ctx.ints(4 + 2 * (ctx.runs % 3), 3)]


def _doubled(how: str) -> Callable[[Group], Callable[[Tensor], Tensor]]:
    return lambda group: lambda x: waited(reduced(x - 1, group, how)) * 2


# -- values ------------------------------------------------------------------------------------------------------------


def _reductions() -> None:
    for how in ("sum", "product", "min", "max"):
        program(
            f"all-reduce-{how}",
            ["C1", "C4"],
            _doubled(how),
            grid,
        )


_reductions()
program(
    "all-reduce-of-integers",
    ["C1"],
    lambda group: lambda x: waited(reduced(x * 3, group)) + x,
    lambda ctx: [ctx.ints(4, 3, dtype=torch.int64)],
)
program(
    "all-reduce-of-transposed", ["C1", "layouts.C1"], lambda group: lambda x: waited(reduced(x.t(), group)) + 1, grid
)
program(
    "all-gather",
    ["C1"],
    lambda group: lambda x: waited(ops.all_gather_into_tensor.default(x * 2, SIZE, group.name)) - 1,
    grid,
)
program(
    "all-gather-of-a-column",
    ["C1"],
    lambda group: (
        lambda x: waited(ops.all_gather_into_tensor.default(x[:, 1].contiguous(), SIZE, group.name)).cumsum(0)
    ),
    grid,
)
program(
    "reduce-scatter",
    ["C1"],
    lambda group: lambda x: waited(ops.reduce_scatter_tensor.default(x + 1, "sum", SIZE, group.name)) * 3,
    grid,
)
program("broadcast", ["C1"], lambda group: lambda x: waited(ops.broadcast.default(x * 3, 1, group.name)) - x, grid)
program(
    "broadcast-of-the-first",
    ["C1"],
    lambda group: lambda x: waited(ops.broadcast.default(x.relu(), 0, group.name)) + x,
    grid,
)
program(
    "all-to-all",
    ["C1"],
    lambda group: (
        lambda x: waited(
            ops.all_to_all_single.default(x * 2, [[1, 2], [3, 2]][group.rank], [[1, 3], [2, 2]][group.rank], group.name)
        ).sum(0)
    ),
    grid,
)
program(
    "of-several-tensors",
    ["C1", "C2"],
    lambda group: (
        lambda x, y: [waited(r) + 1 for r in ops.all_reduce_coalesced.default([x * 2, y[1:] - 1], "sum", group.name)]
    ),
    two,
)
program("of-what-is-none", ["C1"], lambda group: lambda x: waited(x * 2) + waited(reduced(x, group)), grid)
program(
    "of-sizes-that-change",
    ["C1", "shapes.C2"],
    lambda group: lambda x: waited(reduced(x * 2, group)).sum(0),
    growing,
    dynamic=True,
)
program(
    "gathered-of-sizes-that-change",
    ["C1", "shapes.C2"],
    lambda group: lambda x: waited(ops.all_gather_into_tensor.default(x + 1, SIZE, group.name)) * 2,
    growing,
    dynamic=True,
)


# -- order -------------------------------------------------------------------------------------------------------------

program(
    "two-of-one-size",
    ["C2", "C1"],
    lambda group: lambda x, y: (waited(reduced(y * 2, group)), waited(reduced(x + 1, group))),
    two,
    smoke=True,
)
program(
    "twice-the-same", ["C2"], lambda group: lambda x: waited(reduced(x, group)) + waited(reduced(x, group)) * 2, grid
)
program("not-used", ["C2"], lambda group: lambda x: (waited(reduced(x * 2, group)), x + 1)[1], grid)


def in_turn(group: Group) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        first = waited(reduced(x @ y.t(), group))
        second = waited(ops.broadcast.default(y.relu() + first[:, :3], 1, group.name))
        third = waited(ops.all_gather_into_tensor.default((second - x).cumsum(0), SIZE, group.name))
        return first.sum(1), third * 2, waited(reduced(third[:4] + y, group, "max"))

    return fn


program("one-kind-after-another", ["C2", "C1"], in_turn, two)
program("in-several-parts", ["C2", "partition.C1"], in_turn, two, without=("aten.relu", "aten.add"))


# -- what is waited for ------------------------------------------------------------------------------------------------

program("of-a-late-peer", ["C3"], lambda group: lambda x: waited(reduced(x + 1, group)), grid, late=True, smoke=True)
program(
    "read-by-an-operator", ["C3"], lambda group: lambda x: waited(reduced(x * 2, group)).sum(0) - 1, grid, late=True
)


def in_flight(group: Group) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        first, second = reduced(x * 2, group), reduced(y - 1, group)
        between = (x @ y.t()).sum(0)
        return waited(second) + 1, between, waited(first) * 2

    return fn


program("two-in-flight", ["C3", "C2"], in_flight, two, late=True)


# -- memory ------------------------------------------------------------------------------------------------------------


def input_read_afterwards(group: Group) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        result = waited(reduced(y, group))
        return result - y, y, x.sum(0)

    return fn


def written(group: Group) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        result = waited(reduced(x, group))
        x.add_(5)
        return result * 1, x.sum(0)

    return fn


def written_to_result(group: Group) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        result = waited(ops.broadcast.default(x, 0, group.name))
        result.mul_(3)
        return result, x + 1

    return fn


program("input-read-afterwards", ["C4"], input_read_afterwards, grid)
program("input-written-afterwards", ["C4", "mutation.C3"], written, grid)
program("result-written-to", ["C4", "mutation.C5"], written_to_result, grid)
