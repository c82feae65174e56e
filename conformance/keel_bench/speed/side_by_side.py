"""A job of the suites ``cpu`` and ``gpu``: all contenders on one model, each in its process, in interleaved rounds.

Each contender has caches of its own, which start empty. One computes at a time: a round is a turn of each, and each
round begins with another contender.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from keel_conformance.models.model_case import ModelCase
from keel_conformance.workers.pool import WorkerPool
from keel_conformance.workers.spawn import fresh

from ..compilers import EAGER
from ..jobs import BATCHES, PRECISIONS, Job, Selection
from ..models.published import MODELS, build
from ..run_time import alone
from .contender_process import FIRST, MEMORY, ROUND, Contender
from .contenders import contenders, environment_of

ROUNDS, LEAST_ROUNDS = 5, 5
"""Rounds for each round that the user asks for, and how many are measured however long they take."""
TURN, MOST_SECONDS = 0.25, 120.0
"""Seconds of a turn, if a step is shorter, and after which no further round begins."""
FIRST_LIMIT, TURN_LIMIT = 1200.0, 300.0
"""Seconds after which a contender has failed, for its first call and for a turn."""
LAST_LINES = 4  # of what a contender printed before it failed


def jobs(part: str, chosen: Selection) -> list[Job]:
    """The jobs of the part. Throughput comes before batch 1 and float32 before bfloat16, and models vary fastest: so a
    run that is cut short has whole columns of its table.
    """
    return [
        chosen.job(part, name, mode, precision=precision, batch=size_of_batch(name, batch, chosen.device))
        for batch in BATCHES
        for precision in PRECISIONS
        for mode in chosen.modes
        for name in chosen.models
        if name in MODELS and mode in MODELS[name].modes and batch in chosen.batches and precision in chosen.precisions
    ]


def size_of_batch(name: str, batch: str, device: str) -> int:
    return MODELS[name].throughput[device] if batch == "throughput" else int(batch)


def built(job: Job) -> ModelCase:
    return build(job.model, job.batch, job.device, job.scale)


def measure(job: Job, build: Callable[[Job], ModelCase] = built) -> dict[str, Any]:
    """For each contender its figures, with the milliseconds of every round in ``rounds``, or its ``failure`` in words.

    Raises RuntimeError if eager PyTorch fails.
    """
    race = Race()
    with ExitStack() as stack:
        for name in contenders(job):
            start = fresh(Contender(job, name, build), partial(environment, environment_of(name, job)))
            race.pools[name] = stack.enter_context(closing(WorkerPool(start, last_lines=LAST_LINES)))
            race.ask(name, FIRST, FIRST_LIMIT)
            if name == EAGER and race.has_failed(name):
                raise RuntimeError(f"Eager PyTorch cannot run it. {race.figures[name]['failure']}")
        with alone():
            race.run(ROUNDS * job.rounds)
        for name in race.pools:
            race.ask(name, MEMORY, TURN_LIMIT)
    return {"contenders": race.figures}


def environment(more: Mapping[str, str], request: Any, folder: Path) -> Mapping[str, str]:
    """This process's environment and ``more``, with caches in the contender's own folder."""
    return {
        **os.environ,
        **more,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "KEEL_CACHE_DIR": str(folder / "keel"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


@dataclass
class Race:
    """The process of each contender, and its figures so far."""

    pools: dict[str, WorkerPool] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def has_failed(self, name: str) -> bool:
        return "failure" in self.figures[name]

    def ask(self, name: str, kind: str, limit: float) -> dict[str, Any]:
        """What the contender answers, which its figures then have, too; a failure is its last answer."""
        figures = self.figures.setdefault(name, {})
        if "failure" in figures:
            return {}
        pool = self.pools[name]
        pool.submit((kind, TURN), limit)
        while not (ended := pool.poll(1.0)):
            pass
        ((_, outcome),) = ended
        answer: dict[str, Any] = outcome.row if outcome.row is not None else {"failure": outcome.failure}
        if kind != ROUND or outcome.row is None:
            figures.update(answer)
        return answer

    def run(self, most: int) -> None:
        """Rounds, until there are ``most`` of them or they take too long. Each begins with another contender."""
        order = deque(self.pools)
        begin = time.monotonic()
        for number in range(most):
            if number >= LEAST_ROUNDS and time.monotonic() - begin > MOST_SECONDS:
                return
            for name in order:
                if (ms := self.ask(name, ROUND, TURN_LIMIT).get("ms")) is not None:
                    self.figures[name].setdefault("rounds", []).append(ms)
            order.rotate(-1)
