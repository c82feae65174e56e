"""What tracing and legalization cost beside AOTAutograd's own tracing, in CPU seconds, on two models.

Legalization is measured at its dearest: against a backend that takes nothing but primitives, so that everything is
written out. AOTAutograd alone traces the same graphs, decomposes nothing and compiles nothing.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import Any

import torch

from keel import closure, universe
from keel_conformance.models import ModelCase, build
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import ReportPhase

from ..training_step import MODES, Step, prepare, run
from .jobs import Job, Outcomes

MODELS = ("bert", "resnet50")
TARGET, ROUNDS = 1.0, 3

Backend = Callable[..., Any]


def jobs() -> list[Job]:
    return [Job("time", model, mode) for model in MODELS for mode in MODES]


def measure(job: Job, tell: ReportPhase) -> dict[str, float]:
    """CPU seconds that AOTAutograd takes ``alone`` and that Keel ``adds``, medians of rounds that take turns."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    times: dict[str, list[float]] = {"alone": [], "whole": []}
    for n in range(-1, ROUNDS):
        for name, backend in (("alone", universe.aot_alone), ("whole", closure.dynamo_backend())):
            tell(f"tracing {job.title}, round {n}")
            seconds = compiled(job, backend, "tiny" if n < 0 else "line")
            if n >= 0:  # the first, small one is for what is set up once
                times[name].append(seconds)
    alone, with_keel = median(times["alone"]), median(times["whole"])
    return {"alone": alone, "adds": with_keel - alone}


def compiled(job: Job, backend: Backend, scale: str) -> float:
    """CPU seconds that ``backend`` takes for a first step of the model."""
    step = Step(job.mode, "fp32", "cpu")
    case: ModelCase = prepare(step, build(job.name, scale=scale, batch=2))
    seconds = 0.0

    def timed(gm: Any, inputs: Any) -> Any:
        nonlocal seconds
        gc.collect()
        begin = process_time()
        try:
            return backend(gm, inputs)
        finally:
            seconds += process_time() - begin

    torch.compiler.reset()
    run(step, case, torch.compile(case.model, backend=timed, dynamic=False))
    return seconds


def bars(outcomes: Outcomes) -> Iterator[Criterion]:
    for job, outcome in outcomes.items():
        name, target = f"time: {job.name} {job.mode}, Keel's / AOTAutograd's", f"<= {TARGET:g}"
        if outcome.row is None:
            yield Criterion(name, None, target, False, outcome.failure)
            continue
        alone, adds = outcome.row["alone"], outcome.row["adds"]
        yield Criterion(name, adds / alone, target, adds / alone <= TARGET, f"{adds:.2f} s of {alone:.2f} s")
