"""What one disposable process is asked to measure, and what comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from keel_conformance.workers.pool import Outcome

MODES = ("forward", "training")


@dataclass(frozen=True)
class Job:
    """One OpInfo or model: ``forward`` is traced without gradients, ``training`` with its backward graph.

    ``samples`` is how many samples of an OpInfo are taken, spread evenly; None takes all. ``numbers`` asks for the
    comparison with eager PyTorch and float64, too.
    """

    universe: str
    name: str
    mode: str = "forward"
    dynamic: bool = False
    samples: int | None = None
    numbers: bool = True

    @property
    def setting(self) -> str:
        return f"{self.mode} {'dynamic' if self.dynamic else 'static'}"

    @property
    def title(self) -> str:
        return f"{self.name} {self.setting}"


@dataclass
class Row:
    """What became of one job. All of it is plain data, for it travels between processes and into a file.

    ``untraced`` are the samples that PyTorch itself does not run or trace, with its reason; ``outside`` the calls
    that are neither of the operator set nor written out, by name; ``wrong`` what Keel did wrong, in sentences;
    ``faults`` the operators whose types are eager's, for PyTorch's fake kernels are known to say them wrongly;
    ``foreign`` the operators of other packages than PyTorch. ``left_out`` are the ``refused`` samples that hold what
    the operator set leaves out by decision, with a sentence.
    """

    samples: int = 0
    traced: int = 0
    untraced: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    outside: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    ends_in: dict[str, int] = field(default_factory=dict)
    typed: int = 0
    mistyped: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    judged: int = 0
    worst: float = 0.0
    inaccurate: list[str] = field(default_factory=list)
    unjudged: dict[str, str] = field(default_factory=dict)
    restrided: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        return bool(self.traced) and not self.outside and not self.wrong


Outcomes = Mapping[Job, Outcome]
"""The row of a job is a Row; of ``time``, its seconds."""
