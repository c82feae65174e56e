"""What a first step costs in CPU seconds, with empty caches and in a fresh process, beside Inductor's.

CPU seconds of the process and its children are nearly immune to what else the machine does; elapsed seconds are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keel_conformance.models import build
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from .compilers import EAGER, INDUCTOR, compiled
from .cpu_time import cpu_seconds
from .jobs import Job, Selection, beside_inductor
from .run_time import geometric_mean
from .training_step import prepare, run

TARGET = 0.5


def jobs(chosen: Selection) -> list[Job]:
    return [
        Job("compile", model, compiler, mode, scale=chosen.scale, rounds=1, threads=1)
        for model in chosen.models
        for mode in chosen.modes
        for compiler in (INDUCTOR, chosen.backend)
    ]


def measure(job: Job) -> dict[str, Any]:
    """CPU seconds of a first step under the compiler, less those of a second step: what is left is compilation.

    An eager step comes first, so that neither compiler pays for what PyTorch sets up on its first use.
    """
    step = job.step
    case = prepare(step, build(job.model, scale=job.scale))
    run(step, case, compiled(case.model, EAGER))
    prepare(step, case)
    before = cpu_seconds()
    forward = compiled(case.model, job.compiler)
    run(step, case, forward)
    first = cpu_seconds()
    prepare(step, case)
    again = cpu_seconds()
    run(step, case, forward)
    return {"seconds": (first - before) - (cpu_seconds() - again)}


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    ratios: list[float] = []
    for job, outcome in results.items():
        if job.compiler == INDUCTOR:
            continue
        name = f"compile {job.model} {job.mode}: CPU s / Inductor's"
        inductor = beside_inductor(job, results)
        if outcome.row is None or inductor.row is None:
            yield Criterion(name, None, f"<= {TARGET:g}", False, outcome.failure or inductor.failure)
            continue
        own, other = outcome.row["seconds"], inductor.row["seconds"]
        ratios.append(own / other)
        yield Criterion(name, own / other, f"<= {TARGET:g}", own / other <= TARGET, f"{own:.1f} s and {other:.1f} s")
    if len(ratios) > 1:
        mean = geometric_mean(ratios)
        yield Criterion("compile: geometric mean of the ratios", mean, f"<= {TARGET:g}", mean <= TARGET)
