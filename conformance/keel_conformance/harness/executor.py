"""Has the steps of all operators taken at once, by processes that perform and others that judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from multiprocessing.connection import wait
from typing import Any, TypeVar

from ..workers.pool import Crew, Outcome
from ..workers.spawn import forked
from .protocol import Perform
from .scheduler import Ask, Steps, work

T = TypeVar("T")
WARM = "keel_conformance.harness.preload"
AHEAD = 1
"""Operators under way beyond the processes that perform, so that none of these waits while results are judged."""


class Hands:
    """Processes: some that perform, and as many that judge. Lanes of steps are taken to their ends by them."""

    def __init__(self, jobs: int = 1):
        self._performers, self._judges = (Crew(forked(work, WARM), jobs) for _ in range(2))
        self._waiting: list[tuple[Steps[Any], Ask]] = []
        self._asked: dict[int, Steps[Any]] = {}

    def __len__(self) -> int:
        """How many lanes have begun and not ended."""
        return len(self._waiting) + len(self._asked)

    def begin(self, steps: Steps[T]) -> list[T]:
        """Takes a lane to the first thing that it asks for; its end, in a list, if it asks for nothing."""
        return self._advance(steps, None)

    def go(self) -> list[Any]:
        """Gives processes what there is to do, waits for what they have done, and lists the ends of lanes."""
        left = []
        for steps, ask in self._waiting:
            crew = self._performers if isinstance(ask.job, Perform) else self._judges
            if crew.free:
                self._asked[id(ask.job)] = steps
                crew.give(ask.job, ask.limit, fresh=ask.fresh)
            else:
                left.append((steps, ask))
        self._waiting = left
        wait([*self._performers.pipes, *self._judges.pipes], timeout=0.5)
        ends: list[Any] = []
        for job, outcome in [*self._performers.ended(), *self._judges.ended()]:
            ends += self._advance(self._asked.pop(id(job)), outcome)
        return ends

    def take(self, steps: Steps[T]) -> T:
        """Takes one lane to its end."""
        ends = self.begin(steps)
        while not ends:
            ends = self.go()
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


def supervise(lanes: Iterable[Steps[None]], *, jobs: int = 1, stopped: Callable[[], bool] = lambda: False) -> None:
    """Takes all lanes to their ends, those of ``jobs`` and a few more at a time, until ``stopped``."""
    left = iter(lanes)
    with closing(Hands(jobs)) as hands:
        while not stopped():
            while len(hands) < jobs + AHEAD and (steps := next(left, None)) is not None:
                hands.begin(steps)
            if not len(hands):
                return
            hands.go()
