"""Has the steps of all operators taken at once, by processes that perform and others that judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.connection import wait
from typing import Any, TypeVar

from ..workers.pool import Outcome, WorkerPool
from ..workers.spawn import forked
from .protocol import RunRequest
from .scheduler import Request, Steps, work

T = TypeVar("T")
PRELOAD = "keel_conformance.harness.preload"
AHEAD = 1
"""Operators under way beyond the processes that perform, so that none of these waits while results are judged."""


class Executor:
    """Processes: some that perform, and as many that judge. Lanes of steps are taken to their ends by them."""

    def __init__(self, jobs: int = 1):
        self._performers, self._judges = (WorkerPool(forked(work, PRELOAD), jobs) for _ in range(2))
        self._waiting: list[tuple[Steps[Any], Request]] = []
        self._in_flight: dict[int, Steps[Any]] = {}

    def __len__(self) -> int:
        """How many lanes have begun and not ended."""
        return len(self._waiting) + len(self._in_flight)

    def begin(self, steps: Steps[T]) -> list[T]:
        """Takes a lane to the first thing that it asks for; its end, in a list, if it asks for nothing."""
        return self._advance(steps, None)

    def step(self) -> list[Any]:
        """Gives processes what there is to do, waits for what they have done, and lists the ends of lanes."""
        left = []
        for steps, ask in self._waiting:
            pool = self._performers if isinstance(ask.job, RunRequest) else self._judges
            if pool.free:
                self._in_flight[id(ask.job)] = steps
                pool.submit(ask.job, ask.limit, fresh=ask.fresh)
            else:
                left.append((steps, ask))
        self._waiting = left
        wait([*self._performers.pipes, *self._judges.pipes], timeout=0.5)
        ends: list[Any] = []
        for job, outcome in [*self._performers.poll(), *self._judges.poll()]:
            ends += self._advance(self._in_flight.pop(id(job)), outcome)
        return ends

    def run(self, steps: Steps[T]) -> T:
        """Takes one lane to its end."""
        ends = self.begin(steps)
        while not ends:
            ends = self.step()
        return ends[0]

    def close(self) -> None:
        self._performers.close()
        self._judges.close()

    def _advance(self, steps: Steps[Any], outcome: Outcome | None) -> list[Any]:
        try:
            self._waiting.append((steps, next(steps) if outcome is None else steps.send(outcome)))
        except StopIteration as end:
            return [end.value]
        return []


def run_queues(lanes: Iterable[Steps[None]], *, jobs: int = 1, stopped: Callable[[], bool] = lambda: False) -> None:
    """Takes all lanes to their ends, those of ``jobs`` and a few more at a time, until ``stopped``."""
    left = iter(lanes)
    with closing(Executor(jobs)) as executor:
        while not stopped():
            while len(executor) < jobs + AHEAD and (steps := next(left, None)) is not None:
                executor.begin(steps)
            if not len(executor):
                return
            executor.step()
