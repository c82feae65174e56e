"""Contract programs of digits that are easily lost: of float64, of numbers, below the normal ones, in what is
undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter, bound
from .rewrites import special

mutation, graphs = Chapter("mutation"), Chapter("graphs")

# -- float64 -----------------------------------------------------------------------------------------------------------


def long(ctx: Context, *shape: int) -> Tensor:
    """Whole numbers of 41 bits, of which float32 has 24."""
    return ctx.indices(1 << 41, *shape).double() - float(1 << 40)


graphs.function(
    "digits-of-float64",
    ["C1", "dtypes.C1"],
    lambda x, y: (
        x + y,
        x - 3,
        -x,
        x.sum(0),
        (x - y).abs().amax(1),
        torch.maximum(x, y).t(),
        x.cumsum(1),
        torch.where(x > y, x, -y),
    ),
    lambda ctx: [long(ctx, 5, 7), long(ctx, 5, 7)],
    smoke=True,
)
graphs.function(
    "digits-of-float64-moved",
    ["C1", "dtypes.C1"],
    lambda x, i: (
        x[i],
        torch.cat([x, x + 1]),
        x.flip(0) - x,
        x.gather(1, i[:, None] % 5),
        x.t().contiguous(),
        x.repeat(2, 1),
        x.sort(1).values,
        x.roll(2, 1) + x.relu(),
        x.index_add(0, i, x[i]),
    ),
    lambda ctx: [long(ctx, 5, 5), ctx.indices(5, 5)],
)
graphs.function(
    "products-of-float64",
    ["C1", "dtypes.C1"],
    lambda x, s: (x @ s, (x * s.sum()).relu(), (s.t() @ x.t()).sum(1), x * s[0, 0] - x, torch.addmm(x, x, s)),
    lambda ctx: [long(ctx, 5, 5), ctx.ints(5, 5, dtype=torch.float64)],
)
for _name, _fn in (
    ("", lambda x: (torch.where(x > 0, 0.1, x), x.masked_fill(x > 1, 1 / 3), x.clamp(-0.7, 1.1))),
    (
        "-in-new-tensors",
        lambda x: (
            torch.full_like(x, 2.7),
            x.new_full((3,), 1e-3),
            F.pad(x, (1, 2), value=0.3) * 1,
            torch.cat([x[0], torch.full((2,), 0.3, dtype=x.dtype)]),
        ),
    ),
    (
        "-beside-their-neighbors",
        lambda x: (
            (y := x * 0 + 0.1) == 0.1,
            y > 0.1,
            y <= 0.1,
            torch.maximum(x, y),
            y.amin(0),
            torch.where(y != 0.1, x, -x),
            x.lerp(x, 0.1) - x,
        ),
    ),
):
    graphs.function(
        f"numbers-kept-whole{_name}", ["C1", "scalars.C2"], _fn, lambda ctx: [ctx.ints(5, 9, dtype=torch.float64)]
    )
graphs.function(
    "tables-kept-whole",
    ["C1"],
    lambda x: (
        torch.where(x > 0, torch.tensor([0.1, 0.2, 1 / 3], dtype=torch.float64, device=x.device), x),
        x + torch.tensor([1 << 40, 3, 1 << 30], dtype=torch.float64, device=x.device),
        torch.tensor([1 << 40, (1 << 62) + 1], dtype=torch.int64, device=x.device)[:, None] + x.long()[:2],
    ),
    lambda ctx: [ctx.ints(4, 3, dtype=torch.float64)],
)

# -- below the normal numbers ------------------------------------------------------------------------------------------

_SUBNORMAL: tuple[tuple[str, Callable[[Tensor, Tensor], Any]], ...] = (
    ("", lambda x, y: (x + y, x - y * 2, -x, x.relu(), (x * 2).t(), x != 0)),
    ("-summed", lambda x, y: (x.sum(0), (x - y).abs().amax(1), x.cumsum(0) + 0, (x + y).sum())),
    (
        "-chosen",
        lambda x, y: (
            torch.where(x > y, x, 0),
            torch.maximum(x, y),
            x.clamp(min=0),
            x > 0,
            torch.cat([x, y]).flip(0),
            y.masked_fill(x == 0, 1),
        ),
    ),
)
for _name, _float, _power in (("", torch.float32, 2.0**-140), ("-of-float64", torch.float64, 2.0**-1060)):
    for _more, _compute in _SUBNORMAL:
        graphs.function(
            f"subnormal{_more}{_name}",
            ["C1"],
            _compute,
            bound(lambda ctx, d, p: [ctx.ints(5, 7, dtype=d) * p for _ in range(2)], _float, _power),
        )

# -- what is undone, and what is left out of a product -----------------------------------------------------------------


def squares(ctx: Context, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Powers of four of either sign, zeros and special values: their roots and reciprocals are exact."""
    few = torch.tensor([1, 4, 16, -4, -1, 0.25, -64, 0], dtype=torch.float64).to(dtype or ctx.dtype)
    x, other = few[ctx.indices(len(few), *shape)], special(ctx, *shape, dtype=dtype)
    return torch.where(other.isfinite() & (other != 0), x, other)


def undone(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.sqrt() * x.sqrt(),
        x.sqrt().square(),
        x.square().sqrt(),
        x.reciprocal().reciprocal(),
        1 / (1 / x),
        x * x / x,
        x.sqrt() ** 2,
        x.neg().neg(),
        (x * 4) / 4,
        x / 4 * 4,
    )


def ends(x: Tensor) -> tuple[Tensor, ...]:
    """Computations with results that are NaN or infinite."""
    result = (
        x.exp().log(),
        x.log().exp(),
        x.exp2().log2(),
        x.expm1().log1p(),
        x.log1p().expm1(),
        x.sigmoid().logit(),
        (x / 64).atanh().tanh(),
        (x * 64).tanh().atanh(),
        x.square().square().square().square().sqrt().sqrt(),
    )
    return tuple(f for y in result for f in (y.isnan(), y.isinf()))


def masked(x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return (
        x * c,
        x * c.to(x.dtype),
        (x > 0).to(x.dtype) * x,
        (~c).to(x.dtype) * x + 1,
        (x * c).sum(0),
        torch.where(c, x / 2, 0),
        torch.where(c, 0, x * 2),
        x.masked_fill(c, 0) * c,
    )


def chosen_after(x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.where(c, 1 / x, 0),
        torch.where(x > 0, x.sqrt() * 0 + 1, 3),
        torch.where(x == 0, 5, x / x),
        torch.where(c, x, x / 0).amax(1),
        torch.where(x.isnan(), 0, x).sum(1),
        x.nan_to_num(1.0, 2.0, -3.0) * c,
    )


for _name, _dtype in (("", None), ("-of-float64", torch.float64), ("-of-bfloat16", torch.bfloat16)):
    graphs.function(
        f"undone{_name}", ["C1"], undone, bound(lambda ctx, d: [squares(ctx, 5, 9, dtype=d)], _dtype), smoke=not _name
    )
    graphs.function(
        f"undone-at-their-ends{_name}",
        ["C1"],
        ends,
        bound(
            lambda ctx, d: [torch.where(ctx.bools(5, 9), ctx.ints(5, 9, dtype=d) * 1e5, special(ctx, 5, 9, dtype=d))],
            _dtype,
        ),
    )
    graphs.function(
        f"masks-times-values{_name}",
        ["C1"],
        masked,
        bound(lambda ctx, d: [special(ctx, 5, 9, dtype=d), ctx.bools(5, 9)], _dtype),
        smoke=not _name,
    )
    graphs.function(
        f"chosen-after-what-is-not-finite{_name}",
        ["C1"],
        chosen_after,
        bound(lambda ctx, d: [special(ctx, 5, 9, dtype=d), ctx.bools(5, 9)], _dtype),
    )
    graphs.function(
        f"a-row-and-a-column{_name}",
        ["C1"],
        lambda x, y: (
            x + y[None],
            x - y[:, None],
            x * y[None],
            (x - y[None]) * y[:, None],
            x.sum(0, keepdim=True) - x,
            x - x.amax(1, keepdim=True),
            torch.where(y[:, None] > y[None], x, 0),
            y[None] - x.t(),
        ),
        bound(lambda ctx, d: [ctx.ints(6, 6, dtype=d), ctx.ints(6, dtype=d)], _dtype),
    )
    graphs.function(
        f"later-results-alone{_name}",
        ["C1"],
        lambda x: (
            x.chunk(2)[1] + 1,
            x.split(2, 1)[2] * 2,
            x.unbind()[3] - 1,
            x.tensor_split(3)[2].sum(0),
            x.max(1)[1],
            x.sort(1)[1],
            x.cummax(0)[1],
            x.topk(2)[1],
        ),
        bound(lambda ctx, d: [ctx.permutation(36).view(6, 6).to(d or ctx.dtype)], _dtype),
    )


def written_beside(x: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """What is written to copies, and what these are copies of."""
    y = x * 2
    return (
        y.index_put((i,), v),
        y.index_copy(0, i, v) - y,
        y.masked_fill(x > 0, 7),
        y.scatter(0, i[:, None], v) + y,
        y.index_add(0, i, v),
        torch.slice_scatter(y, v[:, 1:3], 1, 2, 4),
        torch.select_scatter(y, v[0], 0, 2) * y,
        y.index_fill(0, i, 5) + 1,
        y.relu() + 0,
        y,
    )


for _name, _dtype in (("", None), ("-of-float64", torch.float64), ("-of-integers", torch.int64)):
    graphs.function(
        f"written-beside-what-they-were{_name}",
        ["C1"],
        written_beside,
        bound(lambda ctx, d: [ctx.ints(5, 5, dtype=d), torch.tensor([4, 0, 3, 1, 2]), ctx.ints(5, 5, dtype=d)], _dtype),
    )

# -- arguments that are read after their new values are known ----------------------------------------------------------


def _late(x: Tensor) -> tuple[Tensor, ...]:
    new = x * 2 + 1
    read = (x - new).sum(0), x.amax(1), x.t() + 1
    x.copy_(new)
    return read


def _both(a: Tensor, b: Tensor) -> Tensor:
    first, second = a + b, a - b
    a.copy_(second)
    b.copy_(first)
    return first * second


def _row(x: Tensor) -> Tensor:
    row = x[1] + x[2]
    rest = x * 3
    x[1] = row
    return rest - row


mutation.function("read-after-its-new-value", ["C2", "C3"], _late, lambda ctx: [ctx.ints(5, 7)], smoke=True)
mutation.function("two-that-become-each-other", ["C2", "C3"], _both, lambda ctx: [ctx.ints(5, 7), ctx.ints(5, 7)])
mutation.function("a-row-read-before", ["C2", "C3", "C5"], _row, lambda ctx: [ctx.ints(5, 7)])
for _name, _view in (
    ("of-transposed", lambda ctx: [ctx.ints(7, 5).t()]),
    ("of-every-second", lambda ctx: [ctx.ints(10, 14)[::2, 1::2]]),
    ("of-an-offset", lambda ctx: [ctx.ints(7, 9)[1:6, 2:]]),
):
    mutation.function(f"read-after-its-new-value-{_name}", ["C2", "C3", "C5"], _late, _view)
