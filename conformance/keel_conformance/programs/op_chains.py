"""Contract programs of any two of a hundred small functions, one after the other: what a rewrite takes for something
else shows on the values and types that it did not think of.

A program has one function first, and after it each of those that can follow. All are exact on what they are given:
halves of small integers; these with NaN, infinities and zeros of both signs; integers that run over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..devices import HOST
from .context import Context
from .program import Chapter
from .rewrites import special

graphs = Chapter("graphs")

One = Callable[[Tensor], Tensor]
N = 6
"""Rows and columns, equal ones: what is taken the wrong way round has the right sizes."""

MOVES: dict[str, One] = {
    "turned": lambda x: x.t(),
    "flipped": lambda x: x.flip(0),
    "flipped-across": lambda x: x.flip(-1),
    "rolled": lambda x: x.roll(2, 0),
    "rolled-back": lambda x: x.roll(-2, 0),
    "rest": lambda x: x[1:],
    "every-second": lambda x: x[::2],
    "every-second-from-1": lambda x: x[1::2],
    "left": lambda x: x[..., :4],
    "every-third": lambda x: x[..., ::3],
    "last": lambda x: x[-1],
    "row": lambda x: x[None],
    "column": lambda x: x[..., None],
    "first": lambda x: x[0],
    "flat": lambda x: x.reshape(-1),
    "pairs": lambda x: x.reshape(-1, 2),
    "twice": lambda x: x.repeat(2, 1),
    "spread": lambda x: x.unsqueeze(0).expand(3, *x.shape),
    "halves-swapped": lambda x: torch.cat([x[3:], x[:3]]),
    "beside-itself": lambda x: torch.cat([x, x], -1),
    "stacked": lambda x: torch.stack([x, x + 1]),
    "padded": lambda x: F.pad(x, (1, 2)),
    "padded-with-3": lambda x: F.pad(x, (1, 1, 1, 1), value=3),
    "cut": lambda x: F.pad(x, (-1, -2)),
    "lower": lambda x: x.tril(),
    "upper": lambda x: x.triu(1),
    "diagonal": lambda x: x.diagonal(),
    "taken": lambda x: x[torch.tensor([4, 0, 0, 2], device=x.device)],
    "taken-across": lambda x: x[..., torch.tensor([2, 5, 1], device=x.device)],
    "windows": lambda x: x.unfold(0, 3, 2),
    "dense": lambda x: x.contiguous(),
}
CHOICES: dict[str, One] = {
    "less-1": lambda x: x - 1,
    "plus-2": lambda x: x + 2,
    "twofold": lambda x: x * 2,
    "times-minus-3": lambda x: x * -3,
    "times-0": lambda x: x * 0,
    "from-5": lambda x: 5 - x,
    "negative": lambda x: -x,
    "absolute": lambda x: x.abs(),
    "sign": lambda x: x.sign(),
    "relu": lambda x: x.relu(),
    "squared": lambda x: x * x,
    "doubled": lambda x: x + x,
    "between": lambda x: x.clamp(-2, 3),
    "between-others": lambda x: x.clamp(4, 7),
    "at-least": lambda x: x.clamp(min=-1),
    "at-most": lambda x: x.clamp(max=1),
    "positive": lambda x: x > 0,
    "not-positive": lambda x: ~(x > 0),
    "less": lambda x: x < 2,
    "equal": lambda x: x == 1,
    "other": lambda x: x != 0,
    "at-least-1": lambda x: x >= 1,
    "more-than-minus-2": lambda x: x > -2,
    "not": lambda x: x.logical_not(),
    "filled": lambda x: x.masked_fill(x > 1, -4),
    "chosen": lambda x: torch.where(x > 0, x, 2),
    "chosen-otherwise": lambda x: torch.where(x > 0, 0, x),
    "greater": lambda x: torch.maximum(x, x.t()),
    "lesser": lambda x: torch.minimum(x, -x),
    "remainder": lambda x: x % 3,
    "remainder-of-minus-4": lambda x: x % -4,
    "whole-quotient": lambda x: x // 3,
    "whole-quotient-of-minus-2": lambda x: x // -2,
    "as-bools": lambda x: x.bool(),
}
SCANS: dict[str, One] = {"running": lambda x: x.cumsum(0), "running-across": lambda x: x.cumsum(-1)}
FOLDS: dict[str, One] = {
    "sum": lambda x: x.sum(),
    "sum-of-columns": lambda x: x.sum(0),
    "sum-of-rows": lambda x: x.sum(-1),
    "sums-kept": lambda x: x.sum(0, keepdim=True),
    "greatest": lambda x: x.amax(0),
    "greatest-of-rows": lambda x: x.amax(-1),
    "least": lambda x: x.amin(-1),
    "where-greatest": lambda x: x.argmax(-1),
    "where-least": lambda x: x.argmin(0),
    **SCANS,
    "sorted": lambda x: x.sort(-1).values,
    "any": lambda x: x.any(0),
    "all": lambda x: x.all(-1),
    "less-the-greatest": lambda x: x - x.amax(-1, keepdim=True),
}
PRODUCTS: dict[str, One] = {
    "product": lambda x: x @ x,
    "product-turned": lambda x: x @ x.t(),
    "turned-products": lambda x: x.t() @ x.t(),
    "two-greatest": lambda x: x.topk(2).values,
    "pooled": lambda x: F.max_pool1d(x, 2),
    "pooled-with-room": lambda x: F.max_pool1d(x, 3, 2, 1),
}
FRACTIONS: dict[str, One] = {
    "rounded": lambda x: x.round(),
    "floor": lambda x: x.floor(),
    "ceiling": lambda x: x.ceil(),
    "whole-part": lambda x: x.trunc(),
    "half": lambda x: x / 2,
    "quarter": lambda x: x * 0.25,
    "fmod": lambda x: x.fmod(3),
    "quotient-of-49": lambda x: (x * 98) // 49,
    "is-nan": lambda x: x.isnan(),
    "without-nan": lambda x: x.nan_to_num(1, 2, -2),
    "root-of-square": lambda x: (x * x).sqrt(),
}
FLOATS: dict[str, One] = {
    "as-float64": lambda x: x.double(),
    "as-float32": lambda x: x.float(),
    "as-bfloat16": lambda x: x.bfloat16(),
    "as-float16": lambda x: x.half(),
}
CASTS: dict[str, One] = {
    "as-int64": lambda x: x.long(),
    "as-int32": lambda x: x.int(),
    "as-int8": lambda x: x.char(),
}
INTEGER_OPS: dict[str, One] = {
    "as-uint8": lambda x: x.byte(),
    "as-int16": lambda x: x.short(),
    "shifted": lambda x: torch.bitwise_left_shift(x, 2),
    "shifted-back": lambda x: torch.bitwise_right_shift(x, 2),
    "bits": lambda x: x & 6,
    "more-bits": lambda x: x | 5,
    "other-bits": lambda x: x ^ 3,
    "complement": lambda x: ~x,
    "threefold": lambda x: x * 3,
    "plus-99": lambda x: x + 99,
    "truncated-quotient": lambda x: torch.div(x, 3, rounding_mode="trunc"),
}
IMAGES: dict[str, One] = {
    "padded": lambda x: F.pad(x, (1, 1, 1, 1)),
    "padded-with-2": lambda x: F.pad(x, (1, 1, 1, 1), value=2),
    "cut": lambda x: F.pad(x, (-1, -1, 0, -1)),
    "greatest": lambda x: F.max_pool2d(x, 2),
    "greatest-with-room": lambda x: F.max_pool2d(x, 3, 2, 1),
    "averages": lambda x: F.avg_pool2d(x, 2),
    "averages-with-room": lambda x: F.avg_pool2d(x, 2, 2, 1, count_include_pad=True),
    "larger": lambda x: F.interpolate(x, scale_factor=2.0),
    "turned": lambda x: x.mT,
    "flipped": lambda x: x.flip(2),
    "relu": lambda x: x.relu(),
    "negative": lambda x: -x,
    "shifted": lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None, None],
    "scaled": lambda x: x * torch.tensor([2, -1], device=x.device)[:, None, None],
    "sums": lambda x: x.sum((2, 3)),
    "sums-of-channels": lambda x: x.sum(1, keepdim=True),
    "sums-of-batches": lambda x: x.sum(0),
    "sums-of-columns": lambda x: x.sum(1),
    "greatest-of-batches": lambda x: x.amax(0),
    "greatest-of-columns": lambda x: x.amax(1),
    "channels-last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "correlated": lambda x: F.conv2d(x, _weight(x), padding=1),
    "correlated-and-shifted": lambda x: F.conv2d(x, _weight(x), _weight(x)[:, 0, 0, 0], stride=2),
    "depthwise": lambda x: F.conv2d(x, _weight(x)[:, :1], groups=2),
    "back": lambda x: F.conv_transpose2d(x, _weight(x)),
    "normalized": lambda x: F.batch_norm(x, _weight(x)[0, :, 0, 0], _weight(x)[0, :, 1, 1] * 0 + 4, eps=2.0**-30),
}


ALONG: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sums": lambda x, d: x.sum(d),
    "greatest": lambda x, d: x.amax(d),
    "running": lambda x, d: x.cumsum(d),
    "flipped": lambda x, d: x.flip(d),
    "row": lambda x, d: x.select(d, 1),
    "rest": lambda x, d: x.narrow(d, 1, 2),
    "every-second": lambda x, d: x.flip(0).index_select(d, torch.arange(0, x.shape[d], 2, device=x.device)),
}


def _along(do: Callable[[Tensor, int], Tensor], d: int) -> One:
    return lambda x: do(x, d)


CUBES: dict[str, One] = {
    **{f"{name}-{d}": _along(do, d) for d in range(3) for name, do in ALONG.items()},
    "turned": lambda x: x.permute(1, 2, 0),
    "turned-back": lambda x: x.permute(2, 0, 1),
    "swapped": lambda x: x.mT,
    "ends-swapped": lambda x: x.transpose(0, 2),
    "flat": lambda x: x.reshape(-1, x.shape[-1]),
    "products": lambda x: x @ x,
    "products-turned": lambda x: x.mT @ x,
}


def _weight(x: Tensor) -> Tensor:
    return (torch.arange(36, device=x.device, dtype=x.dtype) % 5 - 2).view(2, 2, 3, 3)


def halves(ctx: Context) -> Tensor:
    return ctx.ints(N, N, low=-9, high=10) / 2


def integers(bits: int, dtype: torch.dtype) -> Callable[[Context], Tensor]:
    """All that the dtype holds."""

    def drawn(ctx: Context) -> Tensor:
        return (ctx.indices(1 << bits, N, N) * 2 - (1 << bits) + ctx.indices(2, N, N)).to(dtype)

    return drawn


KINDS: Mapping[str, tuple[Callable[[Context], Tensor], Mapping[str, One]]] = {
    "": (halves, MOVES | CHOICES | FOLDS | PRODUCTS | FRACTIONS | FLOATS | CASTS),
    "-of-special-values": (lambda ctx: special(ctx, N, N), CHOICES | FOLDS | PRODUCTS | FRACTIONS | FLOATS),
    "-of-images": (lambda ctx: ctx.ints(2, 2, N, N), IMAGES),
    "-of-cubes": (lambda ctx: ctx.ints(4, 4, 4), CUBES),
    "-of-integers": (integers(61, torch.int64), CHOICES | FOLDS | CASTS | INTEGER_OPS),
    "-of-int8": (integers(7, torch.int8), CHOICES | FOLDS | FLOATS | CASTS | INTEGER_OPS),
}
"""What is drawn, and the functions that are exact on it and on what they make of it. Moves do the same to all."""


def following(first: One, drawn: Callable[[Context], Tensor], functions: Iterable[One], ctx: Context) -> list[One]:
    """Those that take what the first one gives, on the host and then on the device: there an index beyond the end would
    end all that the process has, and some dtypes have no products.
    """
    left = list(functions)
    for where in dict.fromkeys((HOST, ctx.device)):
        with torch.device(where):
            value = first(drawn(Context(ctx.compiler, ctx.clause, device=where)))
            left = [one for one in left if _takes(one, value) and not (one in SCANS.values() and _rounds(value))]
    return left


def _rounds(x: Tensor) -> bool:
    """Whether running sums leave the integers that bfloat16 has, in which eager PyTorch keeps them on CUDA."""
    return x.dtype == torch.bfloat16 and float(x.double().abs().sum()) > 256


def _takes(one: One, value: Tensor) -> bool:
    try:
        one(value)
    except (RuntimeError, IndexError, TypeError):
        return False
    return True


def _compositions() -> None:
    for kind, (drawn, functions) in KINDS.items():
        for name, first in functions.items():

            @graphs("C1", name=f"any-after-{name}{kind}")
            def program(
                ctx: Context,
                drawn: Callable[[Context], Tensor] = drawn,
                functions: Mapping[str, One] = functions,
                first: One = first,
            ) -> None:
                after = following(first, drawn, functions.values(), ctx)

                # Nothing but the second reads the first: rewrites ask for that. A view of a result would be left to
                # PyTorch.
                def fn(x: Tensor) -> tuple[Any, ...]:
                    return tuple(one(first(x)).clone() for one in after)

                go = ctx.compile(fn)
                for _ in ctx.rounds():
                    ctx.run(go, drawn(ctx))


_compositions()
