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

    ``traced`` counts the ``samples`` that PyTorch runs and traces, and ``without_fallback`` those that leave no call to
    eager PyTorch. ``left`` has the calls that are left to eager PyTorch, by name, with the reason. ``host`` has those
    among them that the runtime does without a kernel; they do not count against ``without_fallback``. ``ways`` counts
    calls by how they are done. ``stranger`` has what Keel says about samples with tensors that have no strides; Keel
    refuses them, and they do not count as samples without a fallback.
    """

    samples: int = 0
    traced: int = 0
    without_fallback: int = 0
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
