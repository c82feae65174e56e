"""One axis over twenty sizes: how often is the model compiled, and is every size right?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch

from keel_conformance.models import TEXT, ModelCase, build
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from .accuracy_trial import AccuracyTrial, redraw
from .compilers import EAGER, counted
from .draws import measures
from .error_metrics import TIMES
from .jobs import Job, Selection, failed
from .training_step import prepare, run

# The first size is compiled as it is, the second makes the axis symbolic; 1 is special to PyTorch, and comes later.
SIZES = {
    "batch": (4, 6, 3, 2, 8, 5, 7, 9, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 24),
    "length": (32, 40, 8, 64, 16, 7, 31, 33, 1, 2, 3, 5, 9, 12, 17, 24, 48, 63, 65, 96),
}
COMPILATIONS = 2
AT_ONE = 1  # more, for the size 1
TARGET = f"<= {COMPILATIONS}, and {AT_ONE} for size 1; or as often as PyTorch captures"
FIXED = {"batch": 2, "length": 16}  # of the axis that does not vary


def jobs(chosen: Selection) -> list[Job]:
    """Always at ``tiny`` scale: how an axis is handled does not depend on the widths of the others."""
    return [
        Job("dynamic", model, compiler=chosen.backend, mode=mode, scale="tiny", along=axis, threads=chosen.threads)
        for model in chosen.models
        for mode in chosen.modes
        for axis in (SIZES if model in TEXT else ("batch",))
    ]


def measure(job: Job) -> dict[str, Any]:
    sizes = SIZES[job.along]
    result = sweep(job, sizes)
    torch.compiler.reset()  # what PyTorch has learnt of the axis would spare it a capture
    return {"sizes": len(sizes), "captures": captures(job, sizes), **result}


def sweep(job: Job, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Number of compilations over all sizes, and the worst error among them."""
    step = job.step
    case = prepare(step, sized(job, sizes[0]))
    forward, compilations = counted(case.model, job.compiler)
    inputs = AccuracyTrial(step, forward, case)
    worst, over, at_one = (0.0, ""), [], 0
    for size in sizes:
        before = len(compilations)
        verdict = inputs.judge(measures(step, partial(sized, job, size)), 1)[0]
        at_one += (len(compilations) - before) * (size == 1)
        worst = max(worst, (verdict.times, f"{job.along} {size}: {verdict.name}"))
        if not verdict.holds:
            over.append(f"{size} ({verdict.name} {verdict.farthest:.2f})")
    return {"compilations": len(compilations), "at_one": at_one, "worst": worst[0], "worst_at": worst[1], "over": over}


def captures(job: Job, sizes: tuple[int, ...]) -> int:
    """How often PyTorch captures the model again over the sizes, with any compiler."""
    step = job.step
    case = prepare(step, sized(job, sizes[0]))
    forward, compilations = counted(case.model, EAGER)
    for size in sizes:
        run(step, redraw(case, sized(job, size)), forward)
    return len(compilations)


def sized(job: Job, size: int, seed: int = 0) -> ModelCase:
    sizes: dict[str, Any] = {**(FIXED if job.model in TEXT else {}), job.along: size}
    return build(job.model, scale=job.scale, seed=seed, **sizes)


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if (figures := outcome.row) is None:
            yield failed(job, outcome, TARGET)
            continue
        count, at_one, over = figures["compilations"], figures["at_one"], figures["over"]
        yield Criterion(
            f"{job.title}: compilations for {figures['sizes']} sizes",
            count,
            TARGET,
            (count - at_one <= COMPILATIONS and at_one <= AT_ONE) or count <= figures["captures"],
            f"{at_one} of them for size 1; PyTorch captures {figures['captures']} times",
        )
        yield Criterion(
            f"{job.title}: error",
            figures["worst"],
            f"<= {TIMES:g} x eager's error",
            not over,
            ", ".join(over[:3]) or figures["worst_at"],
        )
