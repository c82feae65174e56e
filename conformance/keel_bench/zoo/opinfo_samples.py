"""PyTorch's operator samples, each compiled by ``torch.compile`` as a user's function is, against eager PyTorch.

A result is judged as ``keel spec closure`` judges it: against float64, by twice eager's own error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from keel import universe
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..closure import accuracy_check
from ..closure.sample_cache import Draws, kind_of
from ..closure.tolerated import UNDEFINED
from ..closure.trace_watch import sentence
from ..jobs import Job, Selection
from . import ways
from .ways import HOLDS, NOT_AOT, NOT_EAGER, RAISED, UNJUDGED, WRONG


def jobs(chosen: Selection) -> list[Job]:
    return [
        chosen.job("zoo-samples", name, mode, along=along, scale="line", rounds=chosen.samples)
        for name in universe.names()
        if name in chosen.models
        for mode in chosen.modes
        if mode == "inference" or universe.supports_autograd(name, chosen.device)
        for along in ways.SIZES
    ]


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    return ways.bars("zoo samples", results)


def measure(job: Job) -> dict[str, Any]:
    """What came of each sample; those that are traced alike are run once."""
    warnings.simplefilter("ignore")
    return _Measured(job).row()


@dataclass
class _Measured:
    job: Job
    ends: dict[str, list[str]] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        visited = set[str]()
        draws = Draws(self.job.model, self.job.mode == "training", self.job.rounds, self.job.device)
        for i, example in enumerate(draws.of(0)):
            if (kind := kind_of(example)) not in visited:
                visited.add(kind)
                torch.compiler.reset()
                with torch.set_grad_enabled(self.job.mode == "training"):
                    end, why = self.one(example, partial(draws.alike, i))
                self.ends.setdefault(end, []).append(
                    f"({example.title[:200]}): {why}" if why else f"({example.title[:60]})"
                )
        return {"ends": self.ends}

    def one(self, example: universe.Example, draw: Callable[[int], universe.Example | None]) -> tuple[str, str]:
        try:
            eager = accuracy_check.leave(example.fn, example.inputs)
        except Exception as e:
            return NOT_EAGER, sentence(e)
        compiled = ways.keel(example.fn, self.job)
        try:
            ours = accuracy_check.leave(compiled, example.inputs)
        except Exception as e:
            return self.against_aot_eager(example, e)
        if unlike := list(accuracy_check.type_differences(ours, eager)):
            return WRONG, unlike[0]
        if (why := self.undefined(example, eager)) is not None:
            return UNJUDGED, why
        try:
            over = accuracy_check.judge_accuracy(draw, compiled).over
        except accuracy_check.NoReference as e:
            return UNJUDGED, str(e)
        return (WRONG, over[0]) if over else (HOLDS, "")

    def undefined(self, example: universe.Example, eager: accuracy_check.Left) -> str | None:
        """Why eager's results cannot be a reference; None if they can."""
        if self.job.model in UNDEFINED:
            return UNDEFINED[self.job.model]
        again = accuracy_check.leave(example.fn, example.inputs)
        same = all(
            torch.equal(accuracy_check.real(eager[n]), accuracy_check.real(t)) or t.isnan().any()
            for n, t in again.items()
        )
        return None if same else "Eager's own results vary from call to call."

    def against_aot_eager(self, example: universe.Example, raised: Exception) -> tuple[str, str]:
        torch.compiler.reset()
        try:
            accuracy_check.leave(ways.aot_eager(example.fn, self.job), example.inputs)
        except Exception as e:
            return NOT_AOT, sentence(e)
        return RAISED, sentence(raised)
