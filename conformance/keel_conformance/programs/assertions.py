"""Contract programs of assertions on what only a run tells: kept ones, broken ones, and what relies on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .context import Context
from .program import Chapter

assertions = Chapter("assertions")

DrawInputs = Callable[[Context], Sequence[Any]]
FAR = 4_000_000
"""Beyond whatever is near in memory."""


def marks(count: int, *, of: int = 7) -> DrawInputs:
    """Small integers of which all but ``count`` are 0, in a random order."""

    def draw(ctx: Context) -> list[Tensor]:
        return [torch.where(ctx.permutation(of) < count, ctx.ints(of, low=1, high=5, dtype=torch.int64), 0)]

    return draw


def both(one: DrawInputs, other: DrawInputs) -> DrawInputs:
    return lambda ctx: [*one(ctx), *other(ctx)]


def numbers(*values: int) -> DrawInputs:
    return lambda ctx: [ctx.to_device(torch.tensor(values))]


def floats(*sizes: int) -> DrawInputs:
    return lambda ctx: [ctx.ints(*sizes)]


def asserted(
    name: str,
    fn: Callable[..., Any],
    holding: DrawInputs,
    broken: DrawInputs,
    *split_ops: str,
    clauses: Sequence[str] = ("C1", "C2"),
    **more: Any,
) -> None:
    """``fn`` on arguments that keep what it asserts and on such as break it, in turns; as a whole, and without each of
    the operators ``split_ops``, which stand on either side of the assertion.
    """

    @assertions(*clauses, name=name, **more)
    def body(ctx: Context) -> None:
        for without in ((), *((op,) for op in split_ops)):
            go = ctx.compile(fn, without=without, fullgraph=True)
            for call in ctx.rounds():
                with warnings.catch_warnings():  # of what PyTorch means to take away
                    warnings.simplefilter("ignore", FutureWarning)
                    ctx.run(go, *holding(ctx))
                    stopped(ctx, f"without {without}, call {call}", go, *broken(ctx))


def stopped(ctx: Context, name: str, go: Callable[..., Any], *args: Any) -> None:
    """Tells whether it raises what a broken assertion raises, and what the arguments hold then."""
    try:
        go(*args)
    except RuntimeError:
        ctx.record(name, "raised RuntimeError")
    except Exception as error:  # what a kernel says that ran before the assertion
        ctx.record(name, f"raised {type(error).__name__}")
    else:
        ctx.record(name, "returned")
    for k, x in enumerate(args):
        ctx.record(f"{name}, argument {k}", x, "contract.assertions.C2")


# -- of sizes ----------------------------------------------------------------------------------------------------------


def places(x: Tensor) -> Any:
    z = x.nonzero()
    torch._check(z.size(0) == 4, lambda: "There are four.")
    return z * 2 + 3, z.t() - 1


def used_before(x: Tensor) -> Any:
    z = x.nonzero()
    y = z * 2
    torch._check(z.size(0) == 4)
    return y - 1, y.sum(0)


def masked(x: Tensor, w: Tensor) -> Any:
    z = w[x > 0]
    torch._check(z.numel() == 4)
    return z @ z, z * 2


def as_many(x: Tensor, y: Tensor) -> Any:
    a, b = x.nonzero(), y.nonzero()
    torch._check(a.size(0) == b.size(0))
    return a * 2 + b


def of_no_use(x: Tensor) -> Any:
    torch._check(x.nonzero().size(0) == 4)
    return x * 2


asserted("size-of-places", places, marks(4), marks(6), "aten.nonzero", "aten.mul", smoke=True)
asserted("size-of-what-was-used-before", used_before, marks(4), marks(2), "aten.nonzero", "aten.mul")
asserted("size-under-a-mask", masked, both(marks(4), floats(7)), both(marks(5), floats(7)), "aten.index", "aten.mul")
asserted("sizes-of-two", as_many, both(marks(3), marks(3)), both(marks(1), marks(7)), "aten.add")
asserted("size-that-nothing-uses", of_no_use, marks(4), marks(3), clauses=["C1"])


# -- of numbers --------------------------------------------------------------------------------------------------------


def sliced(x: Tensor, w: Tensor) -> Any:
    n = x.sum().item()
    torch._check_is_size(n)
    torch._check(n <= w.shape[0])
    return w[:n] * 2


def sliced_before(x: Tensor, w: Tensor) -> Any:
    n = x.sum().item()
    torch._check(n >= 0)
    y = w[:n]
    torch._check(n <= w.shape[0])
    return y * 2, y.sum() + y.shape[0]


def selected(x: Tensor, w: Tensor) -> Any:
    n: Any = x.sum().item()
    torch._check(n >= 0)
    torch._check(n < w.shape[0])
    return w[n] + 1, w.narrow(0, n, 1) * 2


def split(x: Tensor, w: Tensor) -> Any:
    a, b = x.tolist()
    torch._check(a >= 0)
    torch._check(b >= 0)
    torch._check(a + b == w.shape[0])
    p, q = w.split([a, b])
    return p.sum() * 2 + q.sum(), p + 1


def made(x: Tensor) -> Any:
    n: Any = x.sum().item()
    torch._check(n == 6)
    return torch.arange(n, device=x.device) * 2, x.new_full((n,), n)


asserted("bound-of-a-slice", sliced, both(numbers(2, 1), floats(5)), both(numbers(2, FAR), floats(5)), "aten.sum")
asserted(
    "bound-after-its-slice", sliced_before, both(numbers(2, 1), floats(5)), both(numbers(2, FAR), floats(5)), "aten.mul"
)
asserted(
    "bound-of-an-index",
    selected,
    both(numbers(3, 1), floats(5)),
    both(numbers(2, FAR), floats(5)),
    "aten.select",
    smoke=True,
)
asserted("parts-of-a-whole", split, both(numbers(3, 2), floats(5)), both(numbers(3, FAR), floats(5)), "aten.sum")
asserted("number-of-elements", made, numbers(2, 4), numbers(2, 5), "aten.mul")


# -- of values ---------------------------------------------------------------------------------------------------------


def read(i: Tensor, w: Tensor) -> Any:
    torch._assert_async((i < 5).all(), "They are in range.")
    return w[i] + 1, w.index_select(0, i) * 2


def read_without_a_message(i: Tensor, w: Tensor) -> Any:
    torch._assert_async((i < 5).all())
    return w[i] - 1


def written(x: Tensor, w: Tensor) -> Any:
    torch._assert_async((x > 0).any(), "One is positive.")
    w.add_(x.amax())
    return w * 2


asserted(
    "values-of-indices",
    read,
    both(numbers(1, 4, 0), floats(5)),
    both(numbers(1, 7, 0), floats(5)),
    "aten.index",
    "aten.lt",
    smoke=True,
)
asserted(
    "values-of-indices-without-a-message",
    read_without_a_message,
    both(numbers(1, 4, 0), floats(5)),
    both(numbers(1, 7, 0), floats(5)),
    "aten.sub",
)
asserted(
    "values-before-a-write", written, both(numbers(1, 4, 0), floats(5)), both(numbers(-1, 0, 0), floats(5)), "aten.add"
)
