"""Contract programs of control flow that stays in the graph: branches, loops, scans and maps, on values that change."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from keel import control as flow

from .context import Context
from .program import Chapter

control = Chapter("control")


def rows(ctx: Context) -> list[Tensor]:
    return [ctx.ints(5, 4)]


def turns(ctx: Context) -> list[Tensor]:
    """The number of turns is another one at each call."""
    return [ctx.ints(4, 3), torch.tensor((3, 6, 0, 1)[ctx.runs % 4])]


# -- branches ----------------------------------------------------------------------------------------------------------


def _branches() -> None:
    """Taken by a value, which turns over from call to call."""
    bodies: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "by-a-flag": lambda x, flag: torch.cond(flag, lambda y: y * 2 + 1, lambda y: y - 3, (x + 1,)),
        "by-a-sum": lambda x, flag: torch.cond(
            x.sum() + torch.where(flag, 99, -99) > 0, lambda y: (y.sum(0), y.relu()), lambda y: (y.amax(0), -y), (x,)
        ),
        "within-a-branch": lambda x, flag: torch.cond(
            flag,
            lambda y: torch.cond(y.amax() > 2, lambda z: z * 5, lambda z: z + 7, (y,)),
            lambda y: y @ y.t() @ y,
            (x * 2,),
        ),
        "before-and-after": lambda x, flag: (
            torch.cond(~flag, lambda y: y.cumsum(0), lambda y: y.flip(0) * 1, (x * 2,)) + x.sum(1, keepdim=True)
        ),
    }
    for name, fn in bodies.items():

        @control("C1", name=f"branch-{name}", smoke=name == "by-a-flag")
        def body(ctx: Context, fn: Any = fn) -> None:
            go = ctx.compile(fn)
            for call in ctx.rounds():
                ctx.run(go, ctx.ints(5, 4), torch.tensor(call % 2 == 0))
                ctx.run(go, ctx.ints(5, 4), torch.tensor(call % 2 == 1))


_branches()


# -- loops -------------------------------------------------------------------------------------------------------------


def _start(x: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.int64)


control.function(
    "loop",
    ["C2"],
    lambda x, n: flow.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 2 - i), (_start(x), x)),
    turns,
    smoke=True,
)
control.function(
    "loop-of-two-values",
    ["C2"],
    lambda x, n: flow.while_loop(
        lambda i, a, b: i < n, lambda i, a, b: (i + 2, (b - a).clamp(-50, 50), a * 1), (_start(x), x, x + 1)
    ),
    turns,
)
control.function(
    "loop-until-a-value",
    ["C2"],
    lambda x, n: flow.while_loop(lambda i, a: a.sum() < 40 + n, lambda i, a: (i + 1, a + 1), (_start(x), x.abs())),
    turns,
)


# -- scans and maps ----------------------------------------------------------------------------------------------------

control.function("scan", ["C3"], lambda x: flow.scan(lambda c, e: (c + e, c * 2 - e), x[0] * 0, x), rows)
control.function(
    "scan-from-the-end",
    ["C3"],
    lambda x: flow.scan(lambda c, e: ((c - e).clamp(-50, 50), c + e), x[0] + 1, x, reverse=True),
    rows,
)
control.function(
    "scan-along-columns",
    ["C3"],
    lambda x: flow.scan(lambda c, e: (torch.maximum(c, e), c - e), x[:, 0] * 0, x, dim=1),
    rows,
)
control.function(
    "scan-by-pairs", ["C3"], lambda x: flow.associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic") * 2, rows
)
control.function(
    "scan-by-pairs-of-the-greater",
    ["C3"],
    lambda x: flow.associative_scan(torch.maximum, x, 1, combine_mode="generic") - x,
    rows,
)
control.function("map", ["C3"], lambda x: flow.mapped(lambda row: row * 2 - row.amax(), x + 1), rows)
control.function(
    "map-of-several",
    ["C3"],
    lambda x, y: flow.mapped(lambda row, z: (row.flip(0) + z, (row * z).sum()), x * 2, y),
    lambda ctx: [ctx.ints(5, 4), ctx.ints(4)],
)


# -- attention whose scores a function computes ------------------------------------------------------------------------

SPACING = 1000.0
"""Scores are at least so far from each other: all weights but that of the greatest are 0 then, and nothing rounds."""


def attends(ctx: Context, fn: Callable[..., Any], *heads: tuple[int, ...]) -> None:
    """``fn`` gets flex_attention and tensors of these sizes; eager PyTorch warns that it would rather be compiled."""
    from torch.nn.attention.flex_attention import flex_attention  # which imports Dynamo

    go = ctx.compile(lambda *args: fn(flex_attention, *args))
    for _ in ctx.rounds():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ctx.run(go, *(ctx.ints(*sizes) for sizes in heads))


def greatest(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Of equal scores the last."""
    return s * 64 * SPACING + j * SPACING


@control("C4", smoke=True)
def attention_of_scores(ctx: Context) -> None:
    attends(
        ctx,
        lambda attention, q, k, v: attention(q + 1, k, v, score_mod=greatest, scale=1.0) * 2,
        (2, 2, 7, 4),
        (2, 2, 9, 4),
        (2, 2, 9, 4),
    )


@control("C4")
def attention_of_places(ctx: Context) -> None:
    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.where(h == b, s, -s) * 64 * SPACING + torch.where(i % 2 == 0, j, -j) * SPACING

    attends(
        ctx,
        lambda attention, q, k, v: attention(q + 1, k, v, score_mod=score, scale=1.0) * 2,
        (2, 2, 7, 4),
        (2, 2, 9, 4),
        (2, 2, 9, 4),
    )


@control("C4")
def attention_of_captured_values(ctx: Context) -> None:
    def fn(attention: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s * 4096 * SPACING + bias[h, j] * 16 * SPACING + j * SPACING

        return attention(q, k - 1, v, score_mod=score, scale=1.0).sum(2)

    attends(ctx, fn, (2, 2, 5, 4), (2, 2, 11, 4), (2, 2, 11, 4), (2, 11))


@control("C4")
def attention_under_a_mask(ctx: Context) -> None:
    """A query sees of the keys before it every third; both heads have the same keys."""
    from torch.nn.attention.flex_attention import create_block_mask

    mask = create_block_mask(lambda b, h, i, j: (j <= i) & (j % 3 == 0), None, None, 17, 17, device=ctx.device)
    attends(
        ctx,
        lambda attention, q, k, v: (
            attention(q, k, v * 2, score_mod=greatest, block_mask=mask, enable_gqa=True, scale=1.0) - 1
        ),
        (2, 2, 17, 4),
        (2, 1, 17, 4),
        (2, 1, 17, 4),
    )
