"""The suites of the bench, their parts, and the bars that each part's figures are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keel import universe
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from . import accuracy, compile_time, dynamic, memory_traffic, run_time
from .jobs import Job, Selection
from .models import zoo
from .placements import mixed_backends, optimality, prediction, random_programs, scaling
from .zoo import compile_time as zoo_compile_time
from .zoo import models as zoo_models
from .zoo import samples as zoo_samples


@dataclass(frozen=True)
class Part:
    """``jobs`` of a selection, ``measure`` one in its own process, and the ``bars`` that all outcomes amount to."""

    jobs: Callable[[Selection], list[Job]]
    measure: Callable[[Job], dict[str, Any]]
    bars: Callable[[Mapping[Job, Outcome]], Iterable[Criterion]]


SUITES: Mapping[str, Mapping[str, Part]] = {
    "line": {
        "accuracy": Part(accuracy.jobs, accuracy.measure, accuracy.bars),
        "dynamic": Part(dynamic.jobs, dynamic.measure, dynamic.bars),
        "compile": Part(compile_time.jobs, compile_time.measure, compile_time.bars),
        "run": Part(run_time.jobs, run_time.measure, run_time.bars),
        "traffic": Part(memory_traffic.jobs, memory_traffic.measure, memory_traffic.bars),
    },
    "placement": {
        "optimality": Part(optimality.jobs, optimality.measure, optimality.bars),
        "scale": Part(scaling.jobs, scaling.measure, scaling.bars),
        "random": Part(random_programs.jobs, random_programs.measure, random_programs.bars),
        "never-worse": Part(
            mixed_backends.never_worse_jobs, mixed_backends.measure_tried, mixed_backends.never_worse_bars
        ),
        "mixtures": Part(mixed_backends.mixture_jobs, mixed_backends.measure, mixed_backends.mixture_bars),
        "prediction": Part(prediction.jobs, prediction.measure, prediction.bars),
    },
    "zoo": {
        "zoo-models": Part(zoo_models.jobs, zoo_models.measure, zoo_models.bars),
        "zoo-samples": Part(zoo_samples.jobs, zoo_samples.measure, zoo_samples.bars),
        "zoo-compile": Part(zoo_compile_time.jobs, zoo_compile_time.measure, zoo_compile_time.bars),
    },
}
PARTS: Mapping[str, Part] = {name: part for suite in SUITES.values() for name, part in suite.items()}


def programs_of_zoo() -> tuple[str, ...]:
    """The names of its models and of the OpInfos."""
    return (*zoo.NAMES, *zoo.BEYOND, *universe.names())


def plan(parts: Iterable[str], chosen: Selection) -> list[Job]:
    return [job for part in parts for job in PARTS[part].jobs(chosen)]


def bars(outcomes: Mapping[Job, Outcome]) -> list[Criterion]:
    """Every bar, part by part in the order of PARTS."""
    return [
        bar
        for name, part in PARTS.items()
        for bar in part.bars({job: outcome for job, outcome in outcomes.items() if job.part == name})
    ]
