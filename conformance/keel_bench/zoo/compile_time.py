"""What compiling each model of the zoo costs in CPU seconds, against what ``aot_eager`` costs, which compiles nothing.

The difference is Keel's own and its C++ compiler's.  Both are measured in one process, forked from one in which both
have compiled other models (``warm``); Keel's kernel cache starts empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import torch

from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..cpu_time import cpu_seconds
from ..fallbacks import recorded, setting
from ..jobs import Job, Selection, failed
from ..memory_traffic import keels
from ..models import model_zoo
from ..run_time import geometric_mean
from ..training_step import Step, prepare, run
from . import ways

TIMES = 2.0
BY_KERNEL = 0.01
"""CPU seconds that a kernel may add: one for a hundred."""
TARGET = f"<= {TIMES:g} x aot_eager's + 1 s per {1 / BY_KERNEL:.0f} kernels"


def jobs(chosen: Selection) -> list[Job]:
    """CPU seconds are compared on a CPU only."""
    return [
        Job("zoo-compile", model, chosen.backend, mode, along="static", rounds=1, threads=1)
        for model in chosen.models
        if model in (*model_zoo.NAMES, *model_zoo.BEYOND) and chosen.device == "cpu"
        for mode in chosen.modes
    ]


def measure(job: Job) -> dict[str, Any]:
    """CPU seconds of both, and the number of kernels that Keel launches in a step."""
    with TemporaryDirectory(prefix="keel-bench-") as folder, setting("KEEL_CACHE_DIR", folder):
        other, own = (seconds(job, by) for by in (ways.aot_eager, ways.keel))
        with recorded(job.compiler) as dumps:  # apart, for writing dumps takes time
            seconds(job, ways.keel)
            kernels = len(keels(dumps)) if dumps is not None else 0
    return {"kernels": kernels, "aot_eager": other, "seconds": own}


def seconds(job: Job, by: Callable[..., Any]) -> float:
    """CPU seconds of the first two steps, children's too, less those of two more: what is left is compilation.

    A model that keeps something in its first step, as levit does in inference, is compiled again in its second.
    """
    torch.compiler.reset()
    step, case = job.step, model_zoo.build(job.model)
    forward = by(case.model, job)
    first, second, third = (_cpu_seconds_of(step, case, forward) for _ in range(3))
    return first + second - 2 * third


def _cpu_seconds_of(step: Step, case: Any, forward: Callable[..., Any]) -> float:
    prepare(step, case)
    before = cpu_seconds()
    run(step, case, forward)
    return cpu_seconds() - before


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    ratios = []
    for job, outcome in results.items():
        name = f"zoo compile {job.model} {job.mode}: CPU s / aot_eager's"
        if (row := outcome.row) is None:
            yield failed(job, outcome, TARGET)
            continue
        most = TIMES * row["aot_eager"] + BY_KERNEL * row["kernels"]
        ratios.append(row["seconds"] / row["aot_eager"])
        yield Criterion(
            name,
            ratios[-1],
            TARGET,
            row["seconds"] <= most,
            f"{row['seconds']:.1f} s and {row['aot_eager']:.1f} s, {row['kernels']} kernels",
        )
    if len(ratios) > 1:
        yield Criterion("zoo compile: geometric mean of the ratios", geometric_mean(ratios), "shown", None)
