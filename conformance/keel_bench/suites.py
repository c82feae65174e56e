"""The suites of the bench, their parts, and the bars that each part's figures are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from keel import universe
from keel_conformance.models import NAMES
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from . import accuracy, compile_time, memory_traffic, run_time, size_sweep
from .debugging import debug_bars, debug_case
from .distributed import distributed_bars, train_together
from .jobs import Job, Selection
from .models import bandwidth_kernels, model_zoo, published
from .packaged_models import round_trip
from .placements import mixed_backends, optimality, prediction, random_programs, scaling
from .speed import kernel_roofs, side_by_side, speed_bars
from .warm_start import second_process, slow_plugin
from .zoo import compile_time as zoo_compile_time
from .zoo import model_accuracy as zoo_models
from .zoo import opinfo_samples as zoo_samples


@dataclass(frozen=True)
class Part:
    """``jobs`` of a selection, ``measure`` one in its own process, and the ``bars`` that all outcomes amount to."""

    jobs: Callable[[Selection], list[Job]]
    measure: Callable[[Job], dict[str, Any]]
    bars: Callable[[Mapping[Job, Outcome]], Iterable[Criterion]]


@dataclass(frozen=True)
class Suite:
    """``parts`` by name; the names that ``--model`` chooses from, whole or by ``patterns``; and the default options.

    A suite that is ``forked`` starts its processes from one that has imported everything.
    """

    parts: Mapping[str, Part]
    programs: Callable[[], tuple[str, ...]] = lambda: NAMES
    patterns: bool = False
    forked: bool = False
    backend: str = "cpp"
    device: str = "cpu"
    threads: int = 1


def programs_of_zoo() -> tuple[str, ...]:
    """The names of its models and of the OpInfos."""
    return (*model_zoo.NAMES, *model_zoo.BEYOND, *universe.names())


def programs_of_warm_start() -> tuple[str, ...]:
    """The names of the zoo's models, and of BERT with 12 layers."""
    return (*model_zoo.NAMES, second_process.BERT)


def programs_of_debug() -> tuple[str, ...]:
    """The names of the models in which defects are planted."""
    return debug_bars.MODELS


def speed_part(name: str) -> Part:
    """The part of that name, of models beside Inductor."""
    return Part(partial(side_by_side.jobs, name), side_by_side.measure, partial(speed_bars.bars, name))


def kernel_part(name: str) -> Part:
    """The part of that name, of kernels compared with copies."""
    return Part(partial(kernel_roofs.jobs, name), kernel_roofs.measure, kernel_roofs.bars)


def programs_of_speed() -> tuple[str, ...]:
    """The names of models and of kernels."""
    return (*published.MODELS, *bandwidth_kernels.KERNELS)


LINE: Mapping[str, Part] = {
    "accuracy": Part(accuracy.jobs, accuracy.measure, accuracy.bars),
    "dynamic": Part(size_sweep.jobs, size_sweep.measure, size_sweep.bars),
    "compile": Part(compile_time.jobs, compile_time.measure, compile_time.bars),
    "run": Part(run_time.jobs, run_time.measure, run_time.bars),
    "traffic": Part(memory_traffic.jobs, memory_traffic.measure, memory_traffic.bars),
}
PLACEMENT: Mapping[str, Part] = {
    "optimality": Part(optimality.jobs, optimality.measure, optimality.bars),
    "scale": Part(scaling.jobs, scaling.measure, scaling.bars),
    "random": Part(random_programs.jobs, random_programs.measure, random_programs.bars),
    "never-worse": Part(mixed_backends.never_worse_jobs, mixed_backends.measure_tried, mixed_backends.never_worse_bars),
    "mixtures": Part(mixed_backends.mixture_jobs, mixed_backends.measure, mixed_backends.mixture_bars),
    "prediction": Part(prediction.jobs, prediction.measure, prediction.bars),
}
ZOO: Mapping[str, Part] = {
    "zoo-models": Part(zoo_models.jobs, zoo_models.measure, zoo_models.bars),
    "zoo-samples": Part(zoo_samples.jobs, zoo_samples.measure, zoo_samples.bars),
    "zoo-compile": Part(zoo_compile_time.jobs, zoo_compile_time.measure, zoo_compile_time.bars),
}
WARM_START: Mapping[str, Part] = {
    "warm-zoo": Part(second_process.jobs, second_process.measure, second_process.bars),
    "warm-bert": Part(second_process.bert_jobs, second_process.measure, second_process.bert_bars),
    "warm-plugin": Part(slow_plugin.jobs, slow_plugin.measure, slow_plugin.bars),
}
DISTRIBUTED: Mapping[str, Part] = {
    train_together.PART: Part(train_together.jobs, train_together.measure, distributed_bars.bars),
}
PACKAGES: Mapping[str, Part] = {
    round_trip.PART: Part(round_trip.jobs, round_trip.measure, round_trip.bars),
    round_trip.AOTI_PART: Part(round_trip.aoti_jobs, round_trip.measure, round_trip.aoti_bars),
}
DEBUG: Mapping[str, Part] = {
    debug_bars.PART: Part(debug_bars.jobs, debug_case.measure, debug_bars.bars),
}
SUITES: Mapping[str, Suite] = {
    "line": Suite(LINE),
    "placement": Suite(PLACEMENT),
    "zoo": Suite(ZOO, programs_of_zoo, patterns=True, forked=True),
    "warm-start": Suite(WARM_START, programs_of_warm_start, patterns=True),
    "packages": Suite(PACKAGES, round_trip.programs, patterns=True),
    "debug": Suite(DEBUG, programs_of_debug, patterns=True),
    "distributed": Suite(DISTRIBUTED, train_together.programs, patterns=True, backend="keel"),
    "cpu": Suite(
        {"speed-cpu": speed_part("speed-cpu"), "kernels-cpu": kernel_part("kernels-cpu")},
        programs_of_speed,
        patterns=True,
        threads=2,
    ),
    "gpu": Suite(
        {"speed-gpu": speed_part("speed-gpu"), "kernels-gpu": kernel_part("kernels-gpu")},
        programs_of_speed,
        patterns=True,
        backend="triton",
        device="cuda",
    ),
}
PARTS: Mapping[str, Part] = {name: part for suite in SUITES.values() for name, part in suite.parts.items()}


def plan(parts: Iterable[str], chosen: Selection) -> list[Job]:
    return [job for part in parts for job in PARTS[part].jobs(chosen)]


def bars(outcomes: Mapping[Job, Outcome]) -> list[Criterion]:
    """Every bar, part by part in the order of PARTS."""
    return [
        bar
        for name, part in PARTS.items()
        for bar in part.bars({job: outcome for job, outcome in outcomes.items() if job.part == name})
    ]
