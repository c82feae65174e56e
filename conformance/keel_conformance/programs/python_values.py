"""Contract programs about what is given and kept: numbers, Python structures, buffers, one call after another."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..devices import made_on
from .context import Lab
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
        def trained(lab: Lab, make: Any = make, shape: tuple[int, ...] = shape) -> None:
            module = make().to(lab.dtype)
            go = lab.compile(module)
            for call in lab.each():
                module.zero_grad()
                x = (lab.normal(*shape) + call).requires_grad_()
                found = lab.run(go, x)
                lab.backward([found], [x, *module.parameters()], lambda y: lab.normal(*y.shape))
                lab.state(f"call{call}", module)


_norms()


@buffers("C2", "C1", exact=False, smoke=True)
def statistics_read_in_eval(lab: Lab) -> None:
    module = nn.BatchNorm1d(5)
    module = module.double() if lab.wide else module
    go = lab.compile(module)
    for call in lab.each():
        module.train(call % 2 == 0)
        lab.run(go, lab.normal(16, 5) * 2 + 1)
        lab.state(f"call{call}", module, "contract.buffers.C2" if call % 2 else "")


@buffers("C3", profile="core", smoke=True)
def counter(lab: Lab) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.total.add_(x.sum(0))
            return x * self.count

    module = Counting().double() if lab.wide else Counting()
    go = lab.compile(module)
    for call in lab.each():
        lab.run(go, lab.ints(4, 3))
        lab.state(f"call{call}", module)


@buffers("C3", profile="core")
def replaced_buffer(lab: Lab) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            found = x + self.last
            self.last = x * 2
            return found

    module = Last()
    go = lab.compile(module)
    for call in lab.each():
        lab.run(go, lab.ints(3))
        lab.state(f"call{call}", module)


@buffers("C3", profile="core")
def ring(lab: Lab) -> None:
    """A cache that one row of is written at each call, at a place that is a tensor."""
    cache, at = torch.zeros(5, 3, dtype=lab.dtype), torch.zeros(1, dtype=torch.int64)

    def fn(x: Tensor) -> Tensor:
        cache.index_copy_(0, at, x[None])
        at.add_(1).remainder_(5)
        return cache.sum(0)

    go = lab.compile(fn)
    for call in lab.each():
        lab.run(go, lab.ints(3))
        lab.see(f"cache {call}", [cache, at])


# -- scalars -----------------------------------------------------------------------------------------------------------


def vector(lab: Lab) -> list[Tensor]:
    return [lab.ints(9)]


scalars.function("0-d", ["C1"], lambda x, s: (x * s, s + x, s - 1), lambda lab: [lab.ints(9), lab.ints()], smoke=True)
scalars.function(
    "0-d-on-the-host", ["C1"], lambda x, s: (x * s, s + x, x - s), lambda lab: [lab.ints(9), lab.ints(low=1).cpu()]
)
scalars.function(
    "0-d-of-a-wider-dtype",
    ["C1"],
    lambda x, s: (x * s, s * x),
    lambda lab: [lab.ints(9, dtype=torch.float16), lab.ints(dtype=torch.float64)],
)
scalars.function(
    "0-d-integer-with-floats",
    ["C1"],
    lambda x, s: (x + s, x // s),
    lambda lab: [lab.ints(9, low=0), lab.ints(low=1, dtype=torch.int64)],
)
scalars.function(
    "0-d-float-with-integers",
    ["C1"],
    lambda x, s: (x * s, x + s),
    lambda lab: [lab.ints(9, dtype=torch.int32), lab.ints()],
)
scalars.function(
    "0-d-alone", ["C1"], lambda a, b: (a * b + 1, torch.where(a > b, a, b)), lambda lab: [lab.ints(), lab.ints()]
)
scalars.function(
    "0-d-differentiated",
    ["C1", "gradients.C1"],
    lambda x, s: x * s + s,
    lambda lab: [lab.ints(9), lab.ints()],
    gradients=True,
    profile="training",
)
scalars.function("mixed-with-numbers", ["C2"], lambda x: (x * 2 + 0.5, 3 - x, x**2, x // 2, x % 3), vector)
scalars.function(
    "numbers-and-integers",
    ["C2"],
    lambda x: (x * 2, x + 0.5, x / 2, x // 2, x % 3),
    lambda lab: [lab.ints(9, dtype=torch.int32)],
)
scalars.function(
    "filled-with-a-0-d",
    ["C1"],
    lambda x, s: (torch.full_like(x, 2) * s, x.masked_fill(x > 0, 7)),
    lambda lab: [lab.ints(9), lab.ints()],
)


@scalars("C2", smoke=True)
def numbers_that_change(lab: Lab) -> None:
    go = lab.compile(lambda x, n, f: (x * n, x + f))
    for call in lab.each():
        lab.run(go, lab.ints(6), call + 2, call * 0.5)


@scalars("C2")
def flags_that_change(lab: Lab) -> None:
    go = lab.compile(lambda x, twice: x * 2 if twice else x + 1)
    for call in lab.each():
        lab.run(go, lab.ints(6), call % 2 == 0)


@scalars("C3")
def numbers_as_results(lab: Lab) -> None:
    go = lab.compile(lambda x, n: (x.shape[0], n + 1, x * n, 2.5, x.dim(), None, "word"))
    for call in lab.each():
        lab.run(go, lab.ints(6), call)


@scalars("C1", "calls.C1")
def learning_rate(lab: Lab) -> None:
    """A 0-d tensor whose value the caller changes between calls."""
    rate = torch.tensor(1.0, dtype=lab.dtype)
    go = lab.compile(lambda x, g: x - rate * g)
    for _ in lab.each():
        lab.run(go, lab.ints(6), lab.ints(6))
        rate.mul_(0.5)


# -- arguments ---------------------------------------------------------------------------------------------------------


@arguments("C1", smoke=True)
def structures(lab: Lab) -> None:
    def fn(xs: list[Tensor], table: dict[str, Tensor], *rest: Tensor, scale: Tensor) -> dict[str, Any]:
        return {"sum": xs[0] + xs[1], "pair": (table["a"] * scale, [rest[0]]), "b": table["b"] - 1}

    go = lab.compile(fn)
    for _ in lab.each():
        a, b, c, d, e, f = (lab.ints(3, 2) for _ in range(6))
        lab.run(go, [a, b], {"b": d, "a": c}, e, scale=f)


@arguments("C1")
def keywords_in_another_order(lab: Lab) -> None:
    go = lab.compile(lambda a, b=None, *, c=1: a - (b if b is not None else 0) * c)
    for call in lab.each():
        a, b, c = (lab.ints(4) for _ in range(3))
        lab.run(go, **[{"a": a, "b": b, "c": c}, {"c": c, "b": b, "a": a}, {"a": a, "c": c}][call % 3])


@arguments("C2")
def none_and_words(lab: Lab) -> None:
    def fn(x: Tensor, bias: Tensor | None, mode: str) -> Tensor:
        y = x if bias is None else x + bias
        return y.sum(0) if mode == "sum" else y.amax(0)

    go = lab.compile(fn)
    for call in lab.each():
        lab.run(go, lab.ints(4, 3), None if call % 2 else lab.ints(3), "sum" if call < 2 else "max")


@arguments("C3")
def closed_over(lab: Lab) -> None:
    weights = [lab.ints(4), lab.ints(4)]
    go = lab.compile(lambda x: x * weights[0] + weights[1])
    for call in lab.each():
        lab.run(go, lab.ints(4))
        weights[0].add_(1)
        if call % 2:
            weights[1] = lab.ints(4)


@arguments("C1")
def same_structure_other_lengths(lab: Lab) -> None:
    go = lab.compile(lambda xs: torch.cat([x * k for k, x in enumerate(xs)]))
    for call in lab.each():
        lab.run(go, [lab.ints(2 + k) for k in range(2 + call % 3)])


@arguments("C1", "errors.C1")
def part_of_the_program_in_python(lab: Lab) -> None:
    """A graph break: what comes before and after it works on the same tensors."""

    def fn(x: Tensor) -> tuple[Tensor, float]:
        y = x * 2
        total = float(y.sum())
        y.add_(total)
        return y + 1, total

    go = lab.compile(fn)
    for _ in lab.each():
        lab.run(go, lab.ints(5))


# -- calls -------------------------------------------------------------------------------------------------------------


def some(lab: Lab) -> list[Tensor]:
    return [lab.ints(4, 6), lab.ints(6, 3)]


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
def the_same_again(lab: Lab) -> None:
    go = lab.compile(lambda x, w: ((x @ w).relu().cumsum(0), x.amax(1)))
    for _ in lab.each():
        x, w = lab.ints(5, 4), lab.ints(4, 6)
        first, second = lab.run(go, x, w), lab.run(go, x.clone(), w)
        lab.check(f"run {lab.runs}: the same arguments, the same results", all(map(torch.equal, first, second)))


@calls("C1", "C2")
def same_memory_other_values(lab: Lab) -> None:
    go = lab.compile(lambda x: (x * 2, x.sum(0)))
    x = lab.ints(5, 4)
    for _ in lab.each():
        lab.run(go, x)
        x.copy_(lab.ints(5, 4))


@calls("C1", "models.C3")
def same_memory_under_another_name(lab: Lab) -> None:
    """What lies there is written by the caller; neither address nor version tells."""
    go = lab.compile(lambda x, w: (x * w, x.sum(0) - w))
    memory, weights = lab.ints(5, 4), lab.ints(4)
    for _ in lab.each():
        lab.run(go, memory.data, weights.detach())
        memory.copy_(lab.ints(5, 4))
        weights.data.add_(1)


def _threads() -> None:
    """Each has arguments of its own."""
    for name, fn in (
        ("", lambda a, b: ((a @ b).relu() - a, (a * b).cumsum(0), (a - b).sum(1))),
        ("-of-one-result", lambda a, b: (a.relu() * b + 1).t() - a),
        ("-that-sum", lambda a, b: (a.sum(0), (b - a).amax(1), (a * b).sum())),
    ):

        @calls("C4", "models.C1", name=f"several-threads{name}", smoke=not name)
        def body(lab: Lab, fn: Any = fn) -> None:
            go = lab.compile(fn)

            def call(pair: tuple[Tensor, Tensor]) -> Any:
                with made_on(lab.device):  # as where it was compiled: that is of a thread
                    return go(*pair)

            for _ in lab.each():
                lab.run(go, lab.ints(48, 48), lab.ints(48, 48))
                given = [(lab.ints(48, 48), lab.ints(48, 48)) for _ in range(24)]
                with switching(1e-5), ThreadPoolExecutor(4) as pool:
                    found = list(pool.map(call, given))
                lab.see("results of threads", found)


_threads()


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
def results_dropped_at_once(lab: Lab) -> None:
    """Memory that results left is used again by the next call."""
    go = lab.compile(lambda x: (x + 1, x * 2, x.t().contiguous()))
    for _ in lab.each():
        for _ in range(4):
            go(lab.ints(6, 5))
        lab.see("results", go(lab.ints(6, 5)))


@calls("C1", "C2")
def misaligned(lab: Lab) -> None:
    go = lab.compile(lambda a, b: (a * b, (a - b).sum(0), a.amax(1)))
    for call in lab.each():
        memory = lab.ints(400)
        lab.run(go, memory[call + 1 : call + 1 + 153].view(9, 17), memory[200 - call : 353 - call].view(9, 17))


@calls("C1")
def large(lab: Lab) -> None:
    go = lab.compile(lambda x: (x * 2 + 1, x.sum(), x.amax(0)))
    for _ in lab.each():
        lab.run(go, lab.ints(270, 257, low=-1, high=2))


@calls("C1", "C2")
def recursion_between_programs(lab: Lab) -> None:
    inner = lab.compile(lambda x: x * 2)
    outer = lab.compile(lambda x: inner(x) + F.relu(x))
    for _ in lab.each():
        lab.run(outer, lab.ints(5))
