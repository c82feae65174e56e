"""What the figures of the suite ``distributed`` amount to: errors, collectives and waits of the host everywhere; times
and memory on GPUs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..compilers import EAGER, INDUCTOR
from ..error_metrics import NOISE, TIMES
from ..jobs import Job, beyond, failed, within
from .rank_process import COMPILERS, KEEL
from .step_trace import GRAPH

FASTER_THAN_EAGER, INDUCTORS_TIME, INDUCTORS_MEMORY = 1.3, 1.0, 1.02
LEAST_ERROR = 2.0**-24
"""A loss or a parameter may be half an ulp off in float32."""


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        title = f"{job.model} on {job.device}"
        if outcome.row is None:
            yield failed(job, outcome, "all compilers train")
        elif "left_out" in outcome.row:
            yield Criterion(title, None, "shown", None, f"Left out. {outcome.row['left_out']}")
        else:
            yield from bars_of_way(title, Figures(outcome.row["compilers"]))


@dataclass(frozen=True)
class Figures:
    """The figures of one way to train. A step takes as long, and as much memory, as in the slowest rank."""

    compilers: Mapping[str, Any]

    def failure(self, compiler: str) -> str:
        failure: str = self.compilers[compiler].get("failure", "")
        return failure

    def ranks(self, compiler: str) -> list[Mapping[str, Any]]:
        ranks: list[Mapping[str, Any]] = self.compilers[compiler]["ranks"]
        return ranks

    def most(self, compiler: str, name: str) -> float | None:
        """The largest figure of a rank; None where one was not measured."""
        values = [rank[name] for rank in self.ranks(compiler)]
        return None if None in values else max(values)

    def order(self, compiler: str) -> list[list[str]]:
        """For each rank its collectives and backward graphs as they began."""
        return [rank["order"] for rank in self.ranks(compiler)]

    def loss_error(self, compiler: str) -> float:
        return max(float(self.ranks(compiler)[0]["loss_error"]), LEAST_ERROR)

    def parameter_errors(self, compiler: str) -> list[float]:
        return [max(float(error), LEAST_ERROR) for error in self.ranks(compiler)[0]["parameter_errors"]]


def bars_of_way(title: str, figures: Figures) -> Iterator[Criterion]:
    for compiler in COMPILERS:
        if why := figures.failure(compiler):
            yield Criterion(f"{title}: {compiler}", None, "trains", False, why)
    if not figures.failure(EAGER) and not figures.failure(KEEL):
        yield from beside_eager(title, figures)
    if not figures.failure(INDUCTOR) and not figures.failure(KEEL):
        yield from beside_inductors(title, figures)


def beside_eager(title: str, figures: Figures) -> Iterator[Criterion]:
    own, eager = figures.loss_error(KEEL), figures.loss_error(EAGER)
    note = f"root mean square of relative errors: {own:.2g}, eager's {eager:.2g}"
    yield within(f"{title}: error of losses / eager's", own / eager, TIMES, note)
    pairs = list(zip(figures.parameter_errors(KEEL), figures.parameter_errors(EAGER), strict=True))
    own, eager = (root_mean_square(errors) for errors in zip(*pairs, strict=True))
    note = f"root mean square over {len(pairs)} parameters: {own:.2g} of their way, eager's {eager:.2g}"
    yield within(f"{title}: error of parameters / eager's", own / eager, TIMES, note)
    own, eager = max(pairs, key=lambda pair: pair[0] / pair[1])
    note = f"{own:.2g} of its way, eager's {eager:.2g}"
    yield within(f"{title}: error of the worst parameter / eager's", own / eager, NOISE, note)
    for name, what in (("reads", "numbers read by the host"), ("synchronizations", "synchronizations")):
        own_count, eager_count = figures.most(KEEL, name), figures.most(EAGER, name)
        if own_count is not None and eager_count is not None:
            yield within(f"{title}: {what} in a step", own_count, eager_count, f"eager {eager_count:g}")
        elif (figures.most(KEEL, "peak_mib")) is not None:
            yield Criterion(f"{title}: {what} in a step", None, "at most eager's", False, "The profiler saw none.")
    if figures.most(KEEL, "peak_mib") is not None:
        ratio, note = times(figures, EAGER, KEEL)
        yield beyond(f"{title}: speed / eager's", ratio, FASTER_THAN_EAGER, note)


def root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value * value for value in values))


def beside_inductors(title: str, figures: Figures) -> Iterator[Criterion]:
    yield same_order(title, figures)
    ratio, note = times(figures, KEEL, INDUCTOR)
    own_memory, memory = figures.most(KEEL, "peak_mib"), figures.most(INDUCTOR, "peak_mib")
    if own_memory is None or memory is None:
        yield Criterion(f"{title}: time / Inductor's", ratio, "shown", None, note)
        return
    yield within(f"{title}: time / Inductor's", ratio, INDUCTORS_TIME, note)
    note = f"{own_memory:.0f} MiB, Inductor {memory:.0f} MiB"
    yield within(f"{title}: peak memory / Inductor's", own_memory / memory, INDUCTORS_MEMORY, note)
    hidden = {name: figures.most(name, "hidden") or 0.0 for name in COMPILERS if not figures.failure(name)}
    note = ", ".join(f"{name} {part:.2f}" for name, part in hidden.items())
    yield Criterion(f"{title}: part of communication behind other kernels", hidden[KEEL], "shown", None, note)


def times(figures: Figures, of: str, relative_to: str) -> tuple[float, str]:
    """The ratio of two times of a step, and all times in words."""
    ms = {name: figures.most(name, "ms") or 0.0 for name in COMPILERS if not figures.failure(name)}
    return ms[of] / ms[relative_to], ", ".join(f"{name} {value:.1f} ms" for name, value in ms.items())


def same_order(title: str, figures: Figures) -> Criterion:
    """Whether Keel runs Inductor's collectives in Inductor's order, between the same backward graphs."""
    name = f"{title}: ranks whose collectives are other than Inductor's"
    pairs = list(zip(figures.order(KEEL), figures.order(INDUCTOR), strict=True))
    other = [first_difference(own, theirs) for own, theirs in pairs if own != theirs]
    own = pairs[0][0]
    graphs = own.count(GRAPH)
    note = other[0] if other else f"{len(own) - graphs} collectives and {graphs} backward graphs in a step"
    return within(name, len(other), 0, note)


def first_difference(own: list[str], theirs: list[str]) -> str:
    """Where two orders part."""
    number = next((i for i, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), min(len(own), len(theirs)))
    here = [names[number] if number < len(names) else "nothing" for names in (own, theirs)]
    return f"{len(own)} and {len(theirs)} events; number {number} is {here[0]}, Inductor's {here[1]}"
