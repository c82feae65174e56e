"""Contract programs about what is given and kept: numbers, Python structures, buffers, one call after another."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..devices import default_device
from .context import Context
from .program import Chapter

buffers, scalars, arguments, calls = Chapter("buffers"), Chapter("scalars"), Chapter("arguments"), Chapter("calls")

# -- buffers -----------------------------------------------------------------------------------------------------------


def _norms() -> None:
    kinds: Mapping[str, tuple[Any, tuple[int, ...]]] = {
        "batch-norm-1d": (lambda: nn.BatchNorm1d(4), (8, 4)),
        "batch-norm-2d": (lambda: nn.BatchNorm2d(4), (2, 4, 4, 4)),
        "batch-norm-3d": (lambda: nn.BatchNorm3d(2, momentum=0.25), (2, 2, 3, 4, 2)),
        "batch-norm-not-affine": (lambda: nn.BatchNorm1d(4, affine=False, momentum=0.5), (8, 4)),
        "instance-norm-tracked": (lambda: nn.InstanceNorm2d(4, track_running_stats=True), (2, 4, 4, 4)),
    }
    for name, (make, shape) in kinds.items():

        @buffers("C1", "gradients.C1", name=name, exact=False, smoke=name == "batch-norm-2d")
        def trained(ctx: Context, make: Any = make, shape: tuple[int, ...] = shape) -> None:
            module = make().to(ctx.dtype)
            go = ctx.compile(module)
            for call in ctx.rounds():
                module.zero_grad()
                x = (ctx.normal(*shape) + call).requires_grad_()
                result = ctx.run(go, x)
                ctx.backward([result], [x, *module.parameters()], lambda y: ctx.normal(*y.shape))
                ctx.state(f"call{call}", module)


_norms()


@buffers("C2", "C1", exact=False, smoke=True)
def statistics_read_in_eval(ctx: Context) -> None:
    module = nn.BatchNorm1d(5)
    module = module.double() if ctx.wide else module
    go = ctx.compile(module)
    for call in ctx.rounds():
        module.train(call % 2 == 0)
        ctx.run(go, ctx.normal(16, 5) * 2 + 1)
        ctx.state(f"call{call}", module, "contract.buffers.C2" if call % 2 else "")


@buffers("C3", profile="core", smoke=True)
def counter(ctx: Context) -> None:
    class Counting(nn.Module):
        count: Tensor
        total: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.total.add_(x.sum(0))
            return x * self.count

    module = Counting().double() if ctx.wide else Counting()
    go = ctx.compile(module)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(4, 3))
        ctx.state(f"call{call}", module)


@buffers("C3", profile="core")
def replaced_buffer(ctx: Context) -> None:
    class Last(nn.Module):
        last: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            result = x + self.last
            self.last = x * 2
            return result

    module = Last()
    go = ctx.compile(module)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(3))
        ctx.state(f"call{call}", module)


@buffers("C3", profile="core")
def ring(ctx: Context) -> None:
    """A cache that one row of is written at each call, at a place that is a tensor."""
    cache, at = torch.zeros(5, 3, dtype=ctx.dtype), torch.zeros(1, dtype=torch.int64)

    def fn(x: Tensor) -> Tensor:
        cache.index_copy_(0, at, x[None])
        at.add_(1).remainder_(5)
        return cache.sum(0)

    go = ctx.compile(fn)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(3))
        ctx.record(f"cache {call}", [cache, at])


# -- scalars -----------------------------------------------------------------------------------------------------------


def vector(ctx: Context) -> list[Tensor]:
    return [ctx.ints(9)]


scalars.function("0-d", ["C1"], lambda x, s: (x * s, s + x, s - 1), lambda ctx: [ctx.ints(9), ctx.ints()], smoke=True)
scalars.function(
    "0-d-on-the-host", ["C1"], lambda x, s: (x * s, s + x, x - s), lambda ctx: [ctx.ints(9), ctx.ints(low=1).cpu()]
)
scalars.function(
    "0-d-of-a-wider-dtype",
    ["C1"],
    lambda x, s: (x * s, s * x),
    lambda ctx: [ctx.ints(9, dtype=torch.float16), ctx.ints(dtype=torch.float64)],
)
scalars.function(
    "0-d-integer-with-floats",
    ["C1"],
    lambda x, s: (x + s, x // s),
    lambda ctx: [ctx.ints(9, low=0), ctx.ints(low=1, dtype=torch.int64)],
)
scalars.function(
    "0-d-float-with-integers",
    ["C1"],
    lambda x, s: (x * s, x + s),
    lambda ctx: [ctx.ints(9, dtype=torch.int32), ctx.ints()],
)
scalars.function(
    "0-d-alone", ["C1"], lambda a, b: (a * b + 1, torch.where(a > b, a, b)), lambda ctx: [ctx.ints(), ctx.ints()]
)
scalars.function(
    "0-d-differentiated",
    ["C1", "gradients.C1"],
    lambda x, s: x * s + s,
    lambda ctx: [ctx.ints(9), ctx.ints()],
    gradients=True,
    profile="training",
)
scalars.function("mixed-with-numbers", ["C2"], lambda x: (x * 2 + 0.5, 3 - x, x**2, x // 2, x % 3), vector)
scalars.function(
    "numbers-and-integers",
    ["C2"],
    lambda x: (x * 2, x + 0.5, x / 2, x // 2, x % 3),
    lambda ctx: [ctx.ints(9, dtype=torch.int32)],
)
scalars.function(
    "filled-with-a-0-d",
    ["C1"],
    lambda x, s: (torch.full_like(x, 2) * s, x.masked_fill(x > 0, 7)),
    lambda ctx: [ctx.ints(9), ctx.ints()],
)


@scalars("C2", smoke=True)
def numbers_that_change(ctx: Context) -> None:
    go = ctx.compile(lambda x, i, n, f, long: (x * n, x + f, i + long, torch.where(i > 0, long, i)))
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(6), ctx.ints(6, dtype=torch.int64), call + 2, call * 0.5, (1 << 40) + 3 * call)


@scalars("C2")
def flags_that_change(ctx: Context) -> None:
    go = ctx.compile(lambda x, twice: x * 2 if twice else x + 1)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(6), call % 2 == 0)


@scalars("C3")
def numbers_as_results(ctx: Context) -> None:
    go = ctx.compile(lambda x, n: (x.shape[0], n + 1, x * n, 2.5, x.dim(), None, "word"))
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(6), call)


@scalars("C1", "calls.C1")
def learning_rate(ctx: Context) -> None:
    """A 0-d tensor whose value the caller changes between calls."""
    rate = torch.tensor(1.0, dtype=ctx.dtype)
    go = ctx.compile(lambda x, g: x - rate * g)
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(6), ctx.ints(6))
        rate.mul_(0.5)


# -- arguments ---------------------------------------------------------------------------------------------------------


@arguments("C1", smoke=True)
def structures(ctx: Context) -> None:
    def fn(xs: list[Tensor], table: dict[str, Tensor], *rest: Tensor, scale: Tensor) -> dict[str, Any]:
        return {"sum": xs[0] + xs[1], "pair": (table["a"] * scale, [rest[0]]), "b": table["b"] - 1}

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        a, b, c, d, e, f = (ctx.ints(3, 2) for _ in range(6))
        ctx.run(go, [a, b], {"b": d, "a": c}, e, scale=f)


@arguments("C1")
def keywords_in_another_order(ctx: Context) -> None:
    go = ctx.compile(lambda a, b=None, *, c=1: a - (b if b is not None else 0) * c)
    for call in ctx.rounds():
        a, b, c = (ctx.ints(4) for _ in range(3))
        ctx.run(go, **[{"a": a, "b": b, "c": c}, {"c": c, "b": b, "a": a}, {"a": a, "c": c}][call % 3])


@arguments("C2")
def none_and_words(ctx: Context) -> None:
    def fn(x: Tensor, bias: Tensor | None, mode: str) -> Tensor:
        y = x if bias is None else x + bias
        return y.sum(0) if mode == "sum" else y.amax(0)

    go = ctx.compile(fn)
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(4, 3), None if call % 2 else ctx.ints(3), "sum" if call < 2 else "max")


@arguments("C3")
def closed_over(ctx: Context) -> None:
    weights = [ctx.ints(4), ctx.ints(4)]
    go = ctx.compile(lambda x: x * weights[0] + weights[1])
    for call in ctx.rounds():
        ctx.run(go, ctx.ints(4))
        weights[0].add_(1)
        if call % 2:
            weights[1] = ctx.ints(4)


@arguments("C1")
def same_structure_other_lengths(ctx: Context) -> None:
    go = ctx.compile(lambda xs: torch.cat([x * k for k, x in enumerate(xs)]))
    for call in ctx.rounds():
        ctx.run(go, [ctx.ints(2 + k) for k in range(2 + call % 3)])


@arguments("C1", "errors.C1")
def part_of_the_program_in_python(ctx: Context) -> None:
    """A graph break: what comes before and after it works on the same tensors."""

    def fn(x: Tensor) -> tuple[Tensor, float]:
        y = x * 2
        total = float(y.sum())
        y.add_(total)
        return y + 1, total

    go = ctx.compile(fn)
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(5))


# -- calls -------------------------------------------------------------------------------------------------------------


def some(ctx: Context) -> list[Tensor]:
    return [ctx.ints(4, 6), ctx.ints(6, 3)]


calls.function("values-and-addresses-change", ["C1", "C2"], lambda a, b: ((a @ b).relu(), a.sum(1)), some, smoke=True)
calls.function("many-results", ["C1", "C2"], lambda a, b: (a + 1, b - 1, a.t(), (a @ b).sum(), a * a), some)
calls.function(
    "constants-only", ["C2", "C1"], lambda a, b: (torch.ones(3) * 2, torch.arange(5, device=a.device), a.sum()), some
)
calls.function("long-chain", ["C1", "C2"], lambda a, b: long_chain(a), some)
calls.function("temporaries-of-many-sizes", ["C1", "C2"], lambda a, b: temporaries(a, b), some, smoke=True)


def long_chain(x: Tensor) -> Tensor:
    for k in range(30):
        x = (x + k).relu() - (k // 2) if k % 3 else x.flip(0) * -1
    return x


def temporaries(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Reuse of memory between temporaries, some of which become results late."""
    c = a @ b
    d = c.cumsum(0)
    e = torch.cat([c, d], 1).cumsum(1)
    f = e.sum(0)
    return d.t() @ e, f, c.flip(0), (f[:3] * c).cumsum(1)


@calls("C3", "C1", smoke=True)
def the_same_again(ctx: Context) -> None:
    go = ctx.compile(lambda x, w: ((x @ w).relu().cumsum(0), x.amax(1)))
    for _ in ctx.rounds():
        x, w = ctx.ints(5, 4), ctx.ints(4, 6)
        first, second = ctx.run(go, x, w), ctx.run(go, x.clone(), w)
        ctx.check(f"run {ctx.runs}: the same arguments, the same results", all(map(torch.equal, first, second)))


@calls("C1", "C2")
def same_memory_other_values(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x * 2, x.sum(0)))
    x = ctx.ints(5, 4)
    for _ in ctx.rounds():
        ctx.run(go, x)
        x.copy_(ctx.ints(5, 4))


@calls("C1", "models.C3")
def same_memory_under_another_name(ctx: Context) -> None:
    """What lies there is written by the caller; neither address nor version tells."""
    go = ctx.compile(lambda x, w: (x * w, x.sum(0) - w))
    memory, weights = ctx.ints(5, 4), ctx.ints(4)
    for _ in ctx.rounds():
        ctx.run(go, memory.data, weights.detach())
        memory.copy_(ctx.ints(5, 4))
        weights.data.add_(1)


def _threads() -> None:
    """Each has arguments of its own."""
    for name, fn in (
        ("", lambda a, b: ((a @ b).relu() - a, (a * b).cumsum(0), (a - b).sum(1))),
        ("-of-one-result", lambda a, b: (a.relu() * b + 1).t() - a),
        ("-that-sum", lambda a, b: (a.sum(0), (b - a).amax(1), (a * b).sum())),
    ):

        @calls("C4", "models.C1", name=f"several-threads{name}", smoke=not name)
        def body(ctx: Context, fn: Any = fn) -> None:
            go = ctx.compile(fn)

            def call(pair: tuple[Tensor, Tensor]) -> Any:
                with default_device(ctx.device):  # as where it was compiled: that is of a thread
                    return go(*pair)

            for _ in ctx.rounds():
                ctx.run(go, ctx.ints(48, 48), ctx.ints(48, 48))
                inputs = [(ctx.ints(48, 48), ctx.ints(48, 48)) for _ in range(24)]
                with switching(1e-5), ThreadPoolExecutor(4) as pool:
                    results = list(pool.map(call, inputs))
                ctx.record("results of threads", results)


_threads()


@calls("C4", "models.C1", smoke=True)
def first_calls_at_once(ctx: Context) -> None:
    """What a backend builds at the first call is whole before another thread calls it: each of three threads calls the
    program until all of them have called it.
    """

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 2).cumsum(0) - 1, x.sum(0)

    go = ctx.compile(fn)
    x = ctx.ints(6, 5)
    expected, ready, left = fn(x), threading.Barrier(3), [0, 1, 2]

    def call(number: int) -> bool:
        right = True
        with default_device(ctx.device):
            ready.wait()
            try:
                while left:
                    right = right and all(map(torch.equal, go(x), expected))
                    if number in left:
                        left.remove(number)
                    time.sleep(0.001)
            finally:  # a call that raises must not leave the others waiting
                left.clear()
        return right

    with ThreadPoolExecutor(len(left)) as pool:
        for number, right in enumerate(pool.map(call, left.copy())):
            ctx.check(f"what thread {number} gets is right", right)


@calls("C1", smoke=hasattr(os, "fork"), hosted=True)
def in_a_forked_process(ctx: Context) -> None:
    """A loader of data forks processes that call what their parent has compiled."""
    if not hasattr(os, "fork"):
        return
    go, inputs = ctx.compile(lambda x: ((x * 2).cumsum(0) - 1, x.sum(0))), [ctx.ints(6, 5) for _ in range(2)]
    ctx.run(go, inputs[0])
    ctx.record("what the child got", of_a_child(lambda: [y.tolist() for y in go(inputs[1])]))
    ctx.run(go, inputs[1])


def of_a_child(compute: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What a forked process computes, which is plain data; None if it gives nothing in time."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks, as those of users do
        child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)  # as loaders of data do, for a pool of threads does not survive
            os.write(writer, json.dumps(compute()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read() if select.select([pipe], [], [], seconds)[0] else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(text) if text else None


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    """Threads take turns as often as that."""
    was = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(was)


@calls("C1")
def results_dropped_at_once(ctx: Context) -> None:
    """Memory that results left is used again by the next call."""
    go = ctx.compile(lambda x: (x + 1, x * 2, x.t().contiguous()))
    for _ in ctx.rounds():
        for _ in range(4):
            go(ctx.ints(6, 5))
        ctx.record("results", go(ctx.ints(6, 5)))


@calls("C1", "C2")
def misaligned(ctx: Context) -> None:
    go = ctx.compile(lambda a, b: (a * b, (a - b).sum(0), a.amax(1)))
    for call in ctx.rounds():
        memory = ctx.ints(400)
        ctx.run(go, memory[call + 1 : call + 1 + 153].view(9, 17), memory[200 - call : 353 - call].view(9, 17))


@calls("C1")
def large(ctx: Context) -> None:
    go = ctx.compile(lambda x: (x * 2 + 1, x.sum(), x.amax(0)))
    for _ in ctx.rounds():
        ctx.run(go, ctx.ints(270, 257, low=-1, high=2))


@calls("C1", "C2")
def recursion_between_programs(ctx: Context) -> None:
    inner = ctx.compile(lambda x: x * 2)
    outer = ctx.compile(lambda x: inner(x) + F.relu(x))
    for _ in ctx.rounds():
        ctx.run(outer, ctx.ints(5))
