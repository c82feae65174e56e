"""What the bench does in one worker process, and what comes back from it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .step import Step


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

    @property
    def step(self) -> Step:
        return Step(self.mode, self.precision, self.device)

    @property
    def title(self) -> str:
        words = (self.part, self.model, self.mode, self.precision, self.along, self.compiler)
        return " ".join(word for word in words if word)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Selection:
    """What the user asked for; ``precisions`` maps a model to those it is measured in."""

    models: tuple[str, ...]
    modes: tuple[str, ...]
    backend: str
    scale: str = "line"
    rounds: int = 3
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """A job's figures, or the sentence that says why there are none."""

    figures: Mapping[str, Any] | None
    failure: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Bar:
    """One promise: ``value`` measured, ``target`` in words; ``holds`` is None for a figure without a promise."""

    name: str
    value: float | str | None
    target: str
    holds: bool | None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def failed(job: Job, outcome: Outcome, target: str) -> Bar:
    return Bar(job.title, None, target, False, outcome.failure)
