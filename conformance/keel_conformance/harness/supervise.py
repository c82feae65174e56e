"""Has the steps of all operators taken at once, by processes that perform and others that judge."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from multiprocessing.connection import wait
from typing import Any

from ..workers.pool import Crew, Outcome
from ..workers.start import forked
from .job import Perform
from .settle import Ask, Steps, work

WARM = "keel_conformance.harness.warm"
AHEAD = 1
"""Operators under way beyond the processes that perform, so that none of these waits while results are judged."""


def supervise(lanes: Iterable[Steps[None]], *, jobs: int = 1, stopped: Callable[[], bool] = lambda: False) -> None:
    """Takes all steps of all lanes, those of ``jobs`` and a few more at a time, until ``stopped``."""
    left = iter(lanes)
    with closing(Crew(forked(work, WARM), jobs)) as performers, closing(Crew(forked(work, WARM), jobs)) as judges:
        under_way = _UnderWay((performers, judges))
        while not stopped():
            while len(under_way) < jobs + AHEAD and (steps := next(left, None)) is not None:
                under_way.advance(steps, None)
            if not len(under_way):
                return
            under_way.go()


class _UnderWay:
    """The lanes that have begun, each with the one thing that it waits for."""

    def __init__(self, crews: tuple[Crew, Crew]):
        self.performers, self.judges = crews
        self.waiting: list[tuple[Steps[None], Ask]] = []
        self.asked: dict[int, tuple[Steps[None], Any]] = {}

    def __len__(self) -> int:
        return len(self.waiting) + len(self.asked)

    def advance(self, steps: Steps[None], outcome: Outcome | None) -> None:
        """Takes a lane to the next thing that it asks for, if it does."""
        try:
            self.waiting.append((steps, next(steps) if outcome is None else steps.send(outcome)))
        except StopIteration:
            return

    def go(self) -> None:
        """Gives processes what there is to do, and takes what they have done."""
        left = []
        for steps, ask in self.waiting:
            crew = self.performers if isinstance(ask.job, Perform) else self.judges
            if crew.free:
                self.asked[id(ask.job)] = steps, ask.job
                crew.give(ask.job, ask.limit, fresh=ask.fresh)
            else:
                left.append((steps, ask))
        self.waiting = left
        _until_one_speaks([self.performers, self.judges])
        for job, outcome in [*self.performers.ended(), *self.judges.ended()]:
            steps, _ = self.asked.pop(id(job))
            self.advance(steps, outcome)


def _until_one_speaks(crews: Sequence[Crew]) -> None:
    if pipes := [pipe for crew in crews for pipe in crew.pipes]:
        wait(pipes, timeout=0.5)
