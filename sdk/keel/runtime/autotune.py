"""Autotuning of plans: each call of a graph runs one of its plans, in turns, until the fastest is known.

The timed calls are the program's own, so nothing runs twice, and caches and memory are in their usual state. Turns go
back and forth, so that a busy moment of the machine slows all plans alike. Plans are compared round by round: clearly
slower ones drop out, and the others continue until the fastest is known or the difference is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from threading import Lock
from time import perf_counter
from typing import Any

import torch

from keel.errors import KeelError, first_line
from keel.interrupts import is_interrupt
from keel.runtime.accelerators import is_capturing, synchronize
from keel.torch_adapter import Boxed

ROUNDS, MAX_ROUNDS, SECONDS = 5, 25, 60.0
"""The least and the most timed runs of each plan after a warm-up, and the seconds after which timing ends."""
LONGEST = 1 + MAX_ROUNDS
"""The most runs of a plan, with the warm-up."""
DROP_SIGMA = 3.0
"""A plan is dropped once it is slower than the fastest by this many times the error of the difference."""
PRECISION = 0.005
"""Timing stops once the difference between plans is known to this fraction of their run time."""


@dataclass(frozen=True)
class PlanTiming:
    """A plan that was a candidate: the backends of its parts, its predicted seconds, the seconds of its timed runs, and
    whether it was selected (``kept``). ``why`` says why it was not compiled or did not run.
    """

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
    """A plan that can run. If it is selected, ``hear`` is called with the timings of all plans."""

    plan: PlanTiming
    run: Boxed
    hear: Callable[[tuple[PlanTiming, ...]], None]


def autotuned(
    candidates: Sequence[Candidate], failed: Sequence[PlanTiming] = (), devices: Iterable[torch.device] = ()
) -> Boxed:
    """An :class:`Autotuner` as a function with an attribute ``decided()``. PyTorch's wrappers would copy the attributes
    of an object (``functools.wraps``) and keep them alive.
    """
    trial = Autotuner(candidates, failed, devices)

    def run(args: list[Any]) -> Sequence[Any]:
        return trial(args)

    run.decided = lambda: trial.decided  # type: ignore[attr-defined]
    return run


class Autotuner:
    """Runs one of the candidates in each call until the fastest is known, then always the fastest, and frees the
    others. ``failed`` are plans that could not be compiled. If another candidate than the first raises in its first
    run, it drops out, and the first candidate runs that call; so the graph must be one that may run again
    (``keel.graph.purity``). Other exceptions are passed on, and the next call continues. A call that is captured in a
    CUDA graph cannot wait for the device. Such a call, and one that is made while another is timed, run the first
    candidate and are not timed.
    """

    def __init__(
        self, candidates: Sequence[Candidate], failed: Sequence[PlanTiming] = (), devices: Iterable[torch.device] = ()
    ) -> None:
        self._candidates, self._failed, self._devices = list(candidates), tuple(failed), frozenset(devices)
        self._plans, self._usual = [c.plan for c in candidates], candidates[0].run
        self._race, self._lock, self._unknown = trial_schedule(len(candidates)), Lock(), set(range(1, len(candidates)))
        self._turn = next(self._race)

    @property
    def decided(self) -> bool:
        """True if all further calls run the same plan."""
        return not self._candidates

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if not self.decided and self._lock.acquire(blocking=False):
            try:
                if not self.decided and not is_capturing(self._devices):
                    return self._timed(args)
            finally:
                self._lock.release()
        return self._usual(args)

    def _timed(self, args: list[Any]) -> Sequence[Any]:
        number = self._turn
        spare = list(args) if number in self._unknown else None
        synchronize(self._devices)
        start = perf_counter()
        try:
            results = self._candidates[number].run(args)
            synchronize(self._devices)
        except BaseException as raised:
            if spare is None or is_interrupt(raised):
                raise
            why = reason(raised)
        else:
            self._took(number, perf_counter() - start)
            return results
        results = self._usual(spare)  # an exception here is the program's error
        self._plans[number] = replace(self._plans[number], why=why)
        self._took(number, None)
        return results

    def _took(self, number: int, seconds: float | None) -> None:
        self._unknown.discard(number)
        try:
            self._turn = self._race.send(seconds)
        except StopIteration as end:
            timings = [replace(plan, seconds=tuple(runs)) for plan, runs in zip(self._plans, end.value, strict=True)]
            winning = fastest(timings)
            timings[winning] = replace(timings[winning], kept=True)
            winner = self._candidates[winning]
            self._usual = winner.run
            self._candidates.clear()
            winner.hear((*timings, *self._failed))


def trial_schedule(count: int) -> Generator[int, float | None, list[list[float]]]:
    """A generator of the numbers of plans to run next. It is sent the seconds that each run took, or None if a plan
    dropped out in its first run. Returns the timed runs of all plans.
    """
    seconds: list[list[float]] = [[] for _ in range(count)]
    racing, rounds = list[int](), 0
    for i in range(count):  # the first run builds and allocates
        if (yield i) is not None:
            racing.append(i)
    while len(racing) > 1:
        for i in racing if rounds % 2 == 0 else racing[::-1]:
            took = yield i
            assert took is not None
            seconds[i].append(took)
        rounds += 1
        if rounds < ROUNDS:
            continue
        best = min(racing, key=lambda i: median(seconds[i]))
        behind = {i: _behind(seconds[i], seconds[best]) for i in racing}
        racing = [i for i, (longer, error) in behind.items() if longer <= DROP_SIGMA * error]
        known = all(behind[i][1] <= PRECISION * median(seconds[best]) for i in racing)
        if known or rounds == MAX_ROUNDS or sum(map(sum, seconds)) >= SECONDS:
            break
    return seconds


def fastest(timings: Sequence[PlanTiming]) -> int:
    """The number of the plan to select: the fastest, compared round by round. Among plans that take equally long, the
    one with the least predicted time. Plans with fewer runs than others dropped out.
    """
    rounds = max(len(each.seconds) for each in timings)
    ran = [i for i, each in enumerate(timings) if not each.why and len(each.seconds) == rounds]
    best = min(ran, key=lambda i: timings[i].took or 0.0)  # a first choice by medians, which busy rounds distort
    return min(ran, key=lambda i: (_behind(timings[i].seconds, timings[best].seconds)[0], timings[i].predicted))


def _behind(one: Sequence[float], best: Sequence[float]) -> tuple[float, float]:
    """How much longer a plan takes than the best one, as a median over rounds, and the standard error of that."""
    longer = [a - b for a, b in zip(one, best, strict=True)]
    middle = median(longer) if longer else 0.0
    spread = median(abs(x - middle) for x in longer) if longer else 0.0
    return middle, 2 * spread / math.sqrt(max(1, len(longer)))


def reason(raised: BaseException) -> str:
    """Summarizes an exception in one line: what failed, in which backend, and why."""
    if not isinstance(raised, KeelError):
        return first_line(raised)
    reasons = {who: str(why).partition("\n")[0] for who, why in (raised.reasons or {}).items()}
    return " ".join([str(raised).partition("\n")[0], *(f"{who}: {why}" for who, why in reasons.items())])
