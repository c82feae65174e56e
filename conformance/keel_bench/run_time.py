"""How long a warm step takes beside eager PyTorch and Inductor: one process, steps interleaved, medians."""

from __future__ import annotations

import fcntl
import math
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from keel_conformance.models import build
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from .compilers import BASELINES, EAGER, INDUCTOR, compiled
from .jobs import Job, Selection, failed
from .training_step import prepare, run

LOCK = "KEEL_BENCH_LOCK"
"""The environment variable that names the file which jobs lock while they take times."""
WARM_UP = 3
TIMINGS = 10  # for each round asked for


def jobs(chosen: Selection) -> list[Job]:
    return chosen.jobs("run")


def measure(job: Job) -> dict[str, Any]:
    """Median milliseconds of a step for each compiler. Their steps alternate, so that a busy moment slows all alike."""
    step, compilers = job.step, (*BASELINES, job.compiler)
    cases = {c: prepare(step, build(job.model, scale=job.scale, device=job.device)) for c in compilers}
    forwards = {c: compiled(cases[c].model, c) for c in compilers}
    times: dict[str, list[float]] = {c: [] for c in compilers}
    for _ in range(WARM_UP):
        for c in compilers:
            run(step, prepare(step, cases[c]), forwards[c])
    with alone():
        for _ in range(TIMINGS * job.rounds):
            for c in compilers:
                prepare(step, cases[c])
                finish(job.device)
                start = time.perf_counter()
                run(step, cases[c], forwards[c])
                finish(job.device)
                times[c].append(time.perf_counter() - start)
    return {c: 1e3 * statistics.median(ts) for c, ts in times.items()}


def finish(device: str) -> None:
    """Waits for what was launched on the device."""
    here = torch.accelerator.current_accelerator()
    if here is not None and here.type == torch.device(device).type:
        torch.accelerator.synchronize()


def now(device: str) -> float:
    """Seconds of a clock: of the process where one thread of a CPU computes, for then a busy machine hardly shows."""
    return time.process_time() if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter()


@contextmanager
def alone() -> Iterator[None]:
    """Within it no other job of the bench takes times, whatever it compiles meanwhile."""
    with open(os.environ[LOCK], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    ratios: dict[str, list[float]] = {c: [] for c in BASELINES}
    for job, outcome in results.items():
        if (ms := outcome.row) is None:
            yield failed(job, outcome, "shown")
            continue
        note = ", ".join(f"{c} {t:.1f} ms" for c, t in ms.items())
        for baseline in (EAGER, INDUCTOR):
            ratios[baseline].append(ms[job.compiler] / ms[baseline])
            yield Criterion(f"{job.title}: time / {baseline}'s", ratios[baseline][-1], "shown", None, note)
    for baseline, of in ratios.items():
        if len(of) > 1:
            yield Criterion(f"run: geometric mean of time / {baseline}'s", geometric_mean(of), "shown", None)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))
