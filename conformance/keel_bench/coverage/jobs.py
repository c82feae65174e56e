"""What one disposable process is asked to measure of a backend, and what comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from keel_conformance.workers.pool import Outcome

MODES = ("forward", "training")
TABLE = "table"


@dataclass(frozen=True)
class Job:
    """One OpInfo, compiled with ``backend``: ``forward`` without gradients, ``training`` with its backward graph; or,
    in the mode ``table``, one family of declarations.

    ``samples`` is how many samples are taken, spread evenly; None takes all. Without ``numbers`` nothing is built or
    compared.
    """

    backend: str
    name: str
    mode: str
    samples: int | None = None
    numbers: bool = True

    @property
    def title(self) -> str:
        return f"{self.name} {self.mode}"


@dataclass
class Row:
    """What became of one OpInfo's samples; plain data.

    Of ``samples``, ``traced`` are those that PyTorch runs and traces, ``whole`` those of which no call is left to eager
    PyTorch. ``left`` are the calls that are, by name, with the reason; ``host`` those among them that are the runtime's
    and no kernel's, which do not count. ``ways`` counts calls by how they are done. ``stranger`` has what Keel says of
    samples with tensors without strides, which it does not take and which count as not whole.
    """

    samples: int = 0
    traced: int = 0
    whole: int = 0
    untraced: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    ways: dict[str, int] = field(default_factory=dict)
    externs: dict[str, int] = field(default_factory=dict)
    stranger: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    judged: int = 0
    worst: float = 0.0
    inaccurate: list[str] = field(default_factory=list)
    unjudged: dict[str, str] = field(default_factory=dict)


Outcomes = Mapping[Job, Outcome]
"""The row of a job is a Row; of a table, cells."""
