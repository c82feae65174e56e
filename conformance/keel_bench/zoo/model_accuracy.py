"""Every model of the zoo, compiled once and run at three sizes: outputs, gradients and buffers against float64.

A tensor is judged as the accuracy part of the line judges it.  A tensor that is over the bound in the first draw of
weights is judged over three draws, then over twelve, to distinguish a kink in one draw from an error (see ``errors``).
The results of eager PyTorch and of float64 are computed once for each draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..accuracy_trial import AccuracyTrial
from ..closure.trace_watch import sentence
from ..draws import measures
from ..jobs import Job, Selection
from ..models import model_zoo
from ..training_step import Step, prepare, run
from . import ways
from .ways import HOLDS, NOT_AOT, NOT_EAGER, RAISED, UNJUDGED, WRONG


def jobs(chosen: Selection) -> list[Job]:
    """Returns the jobs in the order in which they should start.

    Cheap ways come first, so that a run that is cut short has finished most jobs.  The ways of one model are far apart,
    so that each finds the kernels that another compiled.  Within a way the image models come first, because they take
    longest: no long job is left when the others have ended.
    """
    models = [model for model in reversed(model_zoo.NAMES) if model in chosen.models]
    return [
        chosen.job("zoo-models", model, mode, along=along, scale="line")
        for mode in chosen.modes
        for along in ways.SIZES
        for model in models
    ]


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    return ways.bars("zoo models", results)


def measure(job: Job) -> dict[str, Any]:
    """What came of each size, and the tensors of all sizes that were judged at a kink."""
    return _Measured(job).row()


@dataclass
class _Measured:
    job: Job
    ends: dict[str, list[str]] = field(default_factory=dict)
    kinks: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        step, sizes = self.job.step, model_zoo.sizes(self.job.model)
        case = prepare(step, model_zoo.build(self.job.model, device=self.job.device))
        inputs = AccuracyTrial(step, ways.keel(case.model, self.job), case)
        for size in sizes:
            end, why = self.one(inputs, size)
            self.ends.setdefault(end, []).append(f"{size}: {why}" if why else str(size))
        return {"ends": self.ends, "kinks": self.kinks}

    def one(self, inputs: AccuracyTrial, size: model_zoo.Size) -> tuple[str, str]:
        drawn = partial(model_zoo.build, self.job.model, size=size, device=self.job.device)
        measured = cache(measures(inputs.step, drawn))
        first = measured(0)
        try:
            _ = first.eager
        except Exception as e:
            return NOT_EAGER, sentence(e)
        try:
            _ = first.exact
        except Exception as e:
            return UNJUDGED, f"In float64 it raises {sentence(e)}"
        try:
            verdicts = inputs.judge(measured, 1, self.job.rounds)
        except Exception as e:
            return self.against_aot_eager(inputs.step, first.drawn, e)
        self.kinks += [f"{size}: {v.name} {v.jump:.2f}" for v in verdicts if v.kinks]
        over = [f"{v.name} {v.farthest:.3g} times eager's error" for v in verdicts if not v.holds]
        return (WRONG, f"{len(over)} of {len(verdicts)} tensors: {over[0]}") if over else (HOLDS, "")

    def against_aot_eager(self, step: Step, case: Any, raised: Exception) -> tuple[str, str]:
        try:
            run(step, prepare(step, case), ways.aot_eager(case.model, self.job))
        except Exception as e:
            return NOT_AOT, sentence(e)
        return RAISED, sentence(raised)
