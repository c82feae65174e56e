"""What the figures of the suites ``cpu`` and ``gpu`` amount to: ratios of Inductor's and Keel's, and their bars."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keel_conformance.report import Criterion, join_names
from keel_conformance.workers.pool import Outcome

from ..compilers import INDUCTOR
from ..jobs import Job, beyond, within
from ..run_time import geometric_mean
from .contenders import INDUCTOR_BEST, KEEL, KEEL_BEST

FIGURES = {"peak memory": "peak_mib", "first call": "first_s", "compilation, CPU s": "cpu_s"}
"""Figures of which less is better, by their names in bars. The other one is the speed."""
SPEED = "speed"
MODELS = 30


@dataclass(frozen=True)
class Ratio:
    """A ratio of one job, with the quartiles of its rounds. Where one of both failed, it counts as 1."""

    value: float
    low: float
    high: float
    failed: bool = False


@dataclass(frozen=True)
class Bar:
    """The geometric mean of a figure's ratios over jobs, and its ``target``: that of speed is the least, of any other
    figure the most. ``mode``, ``precision`` and ``batch`` choose jobs, and None takes all. ``worst`` is the least
    speed that any job may have.
    """

    target: float
    figure: str = SPEED
    best: bool = False
    mode: str | None = None
    precision: str | None = None
    batch: int | None = None
    worst: float | None = None

    @property
    def title(self) -> str:
        words = (self.mode, self.precision, f"batch {self.batch}" if self.batch else "", "best modes" * self.best)
        return ", ".join(word for word in words if word) or "all jobs"

    def chooses(self, job: Job) -> bool:
        pairs = ((self.mode, job.mode), (self.precision, job.precision), (self.batch, job.batch))
        return all(choice in (None, value) for choice, value in pairs)


BARS: Mapping[str, Sequence[Bar]] = {
    "speed-cpu": (
        Bar(1.15, mode="inference", precision="fp32", worst=0.97),
        Bar(1.05, mode="inference", precision="fp32", best=True),
        Bar(1.25, mode="inference", precision="bf16"),
        Bar(1.10, mode="training"),
        Bar(1.0, "peak memory", mode="inference"),
        Bar(1.0, "peak memory", mode="training"),
        Bar(0.07, "compilation, CPU s"),
    ),
    "speed-gpu": (
        Bar(1.10, mode="inference", worst=0.97),
        Bar(1.10, mode="training", worst=0.97),
        Bar(1.05, best=True),
        Bar(1.05, mode="inference", batch=1, best=True),
        Bar(1.0, "peak memory", mode="inference"),
        Bar(1.0, "peak memory", mode="training"),
        Bar(0.25, "first call"),
    ),
}


def ratio(row: Mapping[str, Any] | None, figure: str = SPEED, best: bool = False) -> Ratio:
    """The speed of Keel over Inductor's, round by round; or another figure of Keel over Inductor's."""
    if row is None:
        return Ratio(1.0, 1.0, 1.0, failed=True)
    ours, theirs = (of_mode(row["contenders"], names, best) for names in ((KEEL, KEEL_BEST), (INDUCTOR, INDUCTOR_BEST)))
    if "failure" in ours or "failure" in theirs:
        return Ratio(1.0, 1.0, 1.0, failed=True)
    if figure != SPEED:
        value = ours[FIGURES[figure]] / theirs[FIGURES[figure]]
        return Ratio(value, value, value)
    ratios = [b / a for a, b in zip(ours["rounds"], theirs["rounds"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else 3 * ratios
    return Ratio(middle, low, high)


def of_mode(contenders: Mapping[str, Any], names: tuple[str, str], best: bool) -> Mapping[str, Any]:
    """A compiler's figures in its default or its best mode. The default one is the best where there is no other."""
    default, other = names
    figures: Mapping[str, Any] = contenders[other if best and other in contenders else default]
    return figures


def bars(part: str, results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    """Every bar of the part whose jobs were measured, the number of models, and what failed."""
    if not results:
        return
    for bar in BARS[part]:
        chosen = {job: ratio(outcome.row, bar.figure, bar.best) for job, outcome in results.items() if bar.chooses(job)}
        if chosen:
            yield from held(f"{part}: {bar.figure}, {bar.title}", bar, chosen)
    yield beyond(f"{part}: models", len({job.model for job in results}), MODELS)
    for whose in ("keel", INDUCTOR):
        failures = list(failures_of(whose, results))
        holds = not failures if whose == "keel" else None
        yield Criterion(f"{part}: failures of {whose}", len(failures), "0", holds, join_names(failures, 100))


def held(name: str, bar: Bar, chosen: Mapping[Job, Ratio]) -> Iterator[Criterion]:
    values = [r.value for r in chosen.values()]
    failures = sum(r.failed for r in chosen.values())
    note = f"{len(values)} jobs of {len({job.model for job in chosen})} models, {failures} failed"
    compare = beyond if bar.figure == SPEED else within
    yield compare(f"{name}: geometric mean of the ratios to Inductor", geometric_mean(values), bar.target, note)
    if bar.worst is not None:
        slowest = min(chosen, key=lambda job: chosen[job].value)
        yield beyond(f"{name}: slowest", chosen[slowest].value, bar.worst, slowest.title)


def failures_of(whose: str, results: Mapping[Job, Outcome]) -> Iterable[str]:
    """The jobs in which a mode of the compiler failed, with its words. A job without a row failed for everybody."""
    for job, outcome in results.items():
        if outcome.row is None:
            yield f"{job.title}: {outcome.failure}"
            continue
        for name, figures in outcome.row["contenders"].items():
            if name.startswith(whose) and "failure" in figures:
                yield f"{job.title}, {name}: {figures['failure']}"
