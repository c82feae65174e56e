"""What the bench does in one worker process, and what comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from .compilers import INDUCTOR
from .training_step import Step

PRECISIONS = ("fp32", "bf16")
BATCHES = ("throughput", "1")

# Under autocast two models stand for the rest: one of matrix products, one of convolutions.
IN_BF16 = ("bert", "resnet18")


def precisions(model: str, device: str) -> tuple[str, ...]:
    """On a GPU bfloat16 is what models are trained in, so there every model is measured in it."""
    return ("fp32", "bf16") if model in IN_BF16 or device != "cpu" else ("fp32",)


@dataclass(frozen=True)
class Job:
    """One measurement: ``part`` of the bench for ``model`` under ``compiler``; ``along`` is the axis that varies."""

    part: str
    model: str
    compiler: str
    mode: str = "inference"
    precision: str = "fp32"
    scale: str = "line"
    along: str = ""
    rounds: int = 3
    threads: int = 1
    device: str = "cpu"
    batch: int = 0
    """0 is the model's own."""

    @property
    def step(self) -> Step:
        return Step(self.mode, self.precision, self.device)

    @property
    def title(self) -> str:
        batch = f"x{self.batch}" if self.batch else ""
        words = (self.part, self.model, self.mode, self.precision, self.along, batch, self.compiler)
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Selection:
    """What the user asked for.  ``samples`` is how many of each OpInfo are taken, spread evenly. The suites ``cpu`` and
    ``gpu`` alone choose ``precisions`` and ``batches``, and ``debug`` alone the ``seed``.
    """

    models: tuple[str, ...]
    modes: tuple[str, ...]
    backend: str
    scale: str = "line"
    rounds: int = 3
    threads: int = 1
    device: str = "cpu"
    samples: int = 2
    precisions: tuple[str, ...] = PRECISIONS
    batches: tuple[str, ...] = BATCHES
    seed: int = 33

    def job(self, part: str, model: str, mode: str, **other: Any) -> Job:
        """A job with this selection's settings, and ``other`` ones."""
        job = Job(part, model, self.backend, mode, "fp32", self.scale, "", self.rounds, self.threads, self.device)
        return replace(job, **other)

    def jobs(self, part: str) -> list[Job]:
        """A job for each model, mode and precision."""
        return [
            self.job(part, model, mode, precision=precision)
            for model in self.models
            for mode in self.modes
            for precision in precisions(model, self.device)
        ]

    def few(self, count: int) -> int:
        """``count``, or a hundredth of it on the scale to try things out."""
        return count if self.scale != "tiny" else max(count // 100, 2)


def beside_inductor(job: Job, results: Mapping[Job, Outcome]) -> Outcome:
    """What Inductor did in the same part on the same model, in the same mode."""
    same = (
        o
        for j, o in results.items()
        if (j.part, j.model, j.mode, j.compiler) == (job.part, job.model, job.mode, INDUCTOR)
    )
    return next(same, Outcome(None, "Inductor was not measured."))


def failed(job: Job, outcome: Outcome, target: str) -> Criterion:
    return Criterion(job.title, None, target, False, outcome.failure)


def within(name: str, value: float, most: float, note: str = "") -> Criterion:
    """A figure that may be ``most`` and no more."""
    return Criterion(name, value, f"<= {most:g}" if most else "0", value <= most, note)


def beyond(name: str, value: float, least: float, note: str = "") -> Criterion:
    """A figure that must be ``least`` or more."""
    return Criterion(name, value, f">= {least:g}", value >= least, note)
