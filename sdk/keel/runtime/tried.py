"""Plans of one graph tried against each other: each runs on the arguments of the first call, and the fastest is kept.

Runs alternate, so that a busy moment slows all alike, and plans are compared round by round: clearly slower ones drop
out, and the others go on until it is known which is the fastest, or that it matters little.  There is one result at a
time, which nobody reads; so a graph must be one that may run more than once (``keel.graph.repeat``).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from threading import Lock
from time import perf_counter
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError
from keel.torch_adapter import Boxed
from keel.types import leaves

ROUNDS, MOST, SECONDS = 5, 25, 30.0
"""Timed runs of each plan, after one that warms up: so many at least, so many at most, and none more after so long."""
OUT = 3.0
"""A plan runs no more once it is slower than the fastest by so many times the error of that."""
FINE = 0.005
"""All is told of plans whose difference is known to this share of what they take."""


@dataclass(frozen=True)
class Tried:
    """A plan that was to be tried: the backends of its parts, the seconds that it was predicted to take, those of its
    timed runs, and whether it is ``kept``.  ``why`` says why it was not compiled, or did not run."""

    owners: tuple[str, ...]
    predicted: float
    seconds: tuple[float, ...] = ()
    why: str = ""
    kept: bool = False

    @property
    def took(self) -> float | None:
        """The median of its runs."""
        return median(self.seconds) if self.seconds else None


@dataclass(frozen=True)
class Candidate:
    """A plan that can run.  If it is kept, ``hear`` is told what became of all."""

    plan: Tried
    run: Boxed
    hear: Callable[[tuple[Tried, ...]], None]


def deciding(candidates: Sequence[Candidate], failed: Sequence[Tried] = (),
             devices: Iterable[torch.device] = ()) -> Boxed:
    """A callable that tries the candidates in its first call and is the fastest of them from then on.

    The others, and all that they hold, are let go of.  ``failed`` are plans that could not be compiled.  What the first
    candidate raises passes through, and the next call tries again.  A call that is recorded for a CUDA graph, in which
    nothing can be waited for, runs the first candidate and decides nothing.
    """
    there = frozenset(devices)
    left, kept, lock = list(candidates), list[Boxed](), Lock()

    def decide(args: Sequence[Any]) -> None:
        tried = compared(left, args, lambda: wait(there))
        found = fastest(tried)
        tried[found] = replace(tried[found], kept=True)
        winner = left[found]
        kept.append(winner.run)
        left.clear()
        winner.hear((*tried, *failed))

    def run(args: list[Any]) -> Sequence[Any]:
        if not kept:
            with lock:                                        # of several threads, one decides
                if not kept and recording(there):
                    return left[0].run(args)
                if not kept:
                    decide(tuple(args))
        return kept[0](args)
    return run


def compared(candidates: Sequence[Candidate], args: Sequence[Any], settle: Callable[[], None]) -> list[Tried]:
    """What became of each candidate, in order; ``settle`` waits for what was launched.  Raises what the first raises;
    any other that raises is out."""
    seconds: list[list[float]] = [[] for _ in candidates]
    why = dict[int, str]()

    def turn(numbers: Iterable[int]) -> None:
        for i in numbers:
            if i in why:
                continue
            try:
                seconds[i].append(_timed(candidates[i].run, args, settle))
            except Exception as raised:
                if i == 0:
                    raise
                why[i] = reason(raised)
                seconds[i].clear()

    turn(range(len(candidates)))
    for each in seconds:
        each.clear()                                          # the first run builds and allocates
    racing, rounds = [i for i in range(len(candidates)) if i not in why], 0
    while len(racing) > 1:
        turn(racing if rounds % 2 == 0 else reversed(racing))
        rounds += 1
        racing = [i for i in racing if i not in why]
        if rounds < ROUNDS:
            continue
        best = min(racing, key=lambda i: median(seconds[i]))
        behind = {i: _behind(seconds[i], seconds[best]) for i in racing}
        racing = [i for i, (longer, error) in behind.items() if longer <= OUT * error]
        known = all(behind[i][1] <= FINE * median(seconds[best]) for i in racing)
        if known or rounds == MOST or sum(map(sum, seconds)) >= SECONDS:
            break
    return [replace(c.plan, seconds=tuple(seconds[i]), why=why.get(i, "")) for i, c in enumerate(candidates)]


def fastest(tried: Sequence[Tried]) -> int:
    """The number of the plan to keep: of those that are as fast as the fastest, as far as the runs can tell, the one
    that was predicted to be.  Those with fewer runs than others dropped out."""
    rounds = max(len(each.seconds) for each in tried)
    ran = [i for i, each in enumerate(tried) if not each.why and len(each.seconds) == rounds]
    best = min(ran, key=lambda i: tried[i].took or 0.0)
    behind = {i: _behind(tried[i].seconds, tried[best].seconds) for i in ran}
    return min((i for i, (longer, error) in behind.items() if longer <= error), key=lambda i: tried[i].predicted)


def _behind(one: Sequence[float], best: Sequence[float]) -> tuple[float, float]:
    """By how much longer a plan takes, in the median of the rounds, and the standard error of that."""
    longer = [a - b for a, b in zip(one, best, strict=True)]
    middle = median(longer) if longer else 0.0
    spread = median(abs(x - middle) for x in longer) if longer else 0.0
    return middle, 2 * spread / math.sqrt(max(1, len(longer)))


def _timed(run: Boxed, args: Sequence[Any], settle: Callable[[], None]) -> float:
    """Seconds of one run, whose results are dropped at its end."""
    given = list(args)
    settle()
    start = perf_counter()
    results = run(given)
    settle()
    took = perf_counter() - start
    del results
    return took


def wait(devices: Iterable[torch.device]) -> None:
    """Returns when all that was launched on the accelerators among ``devices`` is done."""
    here = torch.accelerator.current_accelerator()
    for device in devices:
        if here is not None and device.type == here.type:
            torch.accelerator.synchronize(device)


def devices_of(gm: fx.GraphModule) -> frozenset[torch.device]:
    """The devices of a graph's tensors."""
    values = (value for node in gm.graph.nodes for value in leaves(node.meta.get("val")))
    return frozenset(v.device for v in values if isinstance(v, torch.Tensor))


def recording(devices: Iterable[torch.device]) -> bool:
    """Whether what is launched now is recorded and not run."""
    return any(d.type == "cuda" for d in devices) and torch.cuda.is_current_stream_capturing()


def reason(raised: Exception) -> str:
    """One line: what was not done, and who says why."""
    what = str(raised).strip().partition("\n")[0]
    if not isinstance(raised, KeelError):
        return f"{type(raised).__name__}: {what}" if what else f"{type(raised).__name__}."
    said = {who: str(why).partition("\n")[0] for who, why in (raised.reasons or {}).items()}
    return " ".join([what, *(f"{who}: {why}" for who, why in said.items())])
