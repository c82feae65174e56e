"""Contract programs of one compiled program at sizes and strides that change: what is kept for one is not for another.

Sizes that have as many elements as others, or fewer, and rows that lie farther apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter

shapes = Chapter("shapes")

SIZES = ((4, 6), (6, 4), (3, 8), (8, 3), (5, 2), (12, 2), (4, 6))
BODIES: Mapping[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "copied": lambda x: (
        x.t().contiguous(),
        x.t().reshape(-1),
        x.t().clone() * 2,
        x.flip(0),
        x.reshape(-1)[1:] - 1,
        x.contiguous(),
    ),
    "turned": lambda x: (x.t().reshape(-1, 2) + 1, (x.t().contiguous() - x.t()[0]).sum(1)),
    "turned-and-back": lambda x: (x.t().contiguous().t() * 2, x.t().contiguous().t().contiguous()),
    "padded": lambda x: (
        F.pad(x, (1, 2), value=3),
        F.pad(x, (0, 0, 2, 1)),
        F.pad(x, (2, 0, 1, 1), value=-1) + 1,
        F.pad(x, (-1, 2), value=7),
        x.tril(),
        x.triu(1),
        F.pad(x.t(), (1, 0)),
    ),
    "joined": lambda x: (
        torch.cat([x, x.new_full((x.shape[0], 2), 5)], 1),
        torch.stack([x, -x], 1),
        x.repeat(2, 1),
        torch.cat([x[1:], x[:1]]),
        torch.zeros_like(x),
    ),
    "folded": lambda x: (
        x.sum(0),
        x.sum(1),
        x.amax(0),
        x.cumsum(1),
        x.argmax(0),
        x.sort(1).values,
        (x > 0).sum(),
        x - x.amax(1, keepdim=True),
    ),
    "multiplied": lambda x: (x @ x.t(), x.t() @ x, (x @ x.t() + x[:, 0]).relu(), x.sum(1) @ x),
    "moved": lambda x: (
        x.roll(1, 0),
        x.roll(1),
        x[:, ::2] * 2,
        x[1:, 1:],
        x.diagonal(),
        x.unsqueeze(1).expand(-1, 3, -1) + 1,
        x[torch.arange(x.shape[0] - 1, -1, -1, device=x.device)],
    ),
    "written": lambda x: (
        torch.zeros_like(x).index_add(0, torch.arange(x.shape[0], device=x.device) // 2, x),
        torch.zeros_like(x).scatter_add(1, (x > 0).long(), x),
        x.masked_fill(x < 0, 9),
        x.select_scatter(x[0], 0, 1),
    ),
}


CUBES: Mapping[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "copied": lambda x: (x.permute(2, 0, 1).contiguous(), x.mT.reshape(-1), x.transpose(0, 1).contiguous() - 1),
    "padded": lambda x: (F.pad(x, (1, 0, 0, 2), value=4), F.pad(x, (1, 1, 1, 1, 1, 0)), F.pad(x, (0, 3)) + 1),
    "folded": lambda x: (x.sum(1), x.sum((0, 2)), x.amax(0), x.cumsum(1)),
}


def lying(ctx: Context, n: int, m: int) -> Iterator[Tensor]:
    """Values of these sizes: in rows, in columns, in a piece of longer rows, and every second row."""
    yield ctx.ints(n, m)
    yield ctx.ints(m, n).t()
    yield ctx.ints(n, m + 3)[:, 1 : m + 1]
    yield ctx.ints(2 * n, m)[::2]


def _bodies() -> None:
    for name, fn in BODIES.items():

        @shapes("C1", "C2", "layouts.C2", name=f"as-many-elements-{name}")
        def body(ctx: Context, fn: Callable[[Tensor], Any] = fn) -> None:
            go = ctx.compile(fn, dynamic=True)
            for n, m in SIZES:
                for x in lying(ctx, n, m):
                    ctx.run(go, x)

    for name, fn in CUBES.items():

        @shapes("C1", "C2", "layouts.C2", name=f"as-many-elements-of-cubes-{name}")
        def cubes(ctx: Context, fn: Callable[[Tensor], Any] = fn) -> None:
            go = ctx.compile(fn, dynamic=True)
            for n, m in SIZES:
                for k in (2, 3):
                    ctx.run(go, ctx.ints(n, k, m))
                    ctx.run(go, ctx.ints(m, n, k).permute(1, 2, 0))


_bodies()
