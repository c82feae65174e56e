"""What a process is asked, and what it answers: plain data, beside the file that it leaves the results in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from keel import TensorType
from keel.plugin import Arithmetic

from ..cases.case import Case
from ..devices import HOST
from ..oracles.error_rules import IEEE
from ..results.fault import Fault
from ..results.verdict import Verdict

DRAWS = (0, 1, 0)
"""Which of a case's arguments each call of it gets: fresh values at the second, those of the first at the third."""

Phase = Literal["drawing its arguments", "tracing it", "compiling", "running", "watching it"]


OURS: frozenset[Phase] = frozenset({"drawing its arguments", "tracing it", "watching it"})
"""Those in which the backend has no part."""


@dataclass(frozen=True)
class Settings:
    """What holds for each job of a run.  ``memory`` is how many bytes a process may have beyond those that it starts
    with, ``threads`` how many PyTorch may use in it; ``limit`` the seconds that one case may take, to which each
    further one of a batch adds ``slack``.
    """

    subject: str
    memory: int | None = 6 * 2**30
    threads: int = 2
    limit: float = 30.0
    slack: float = 2.0


@dataclass(frozen=True)
class RunRequest:
    """Run the cases, all of one operator and one kind, and leave what came of it in ``file``."""

    settings: Settings
    cases: tuple[Case, ...]
    file: str


@dataclass(frozen=True)
class EagerRequest:
    """Run a case in eager PyTorch on a device, without any backend."""

    case: Case
    device: str
    threads: int = 1


@dataclass(frozen=True)
class EagerResponse:
    """Eager PyTorch came through: ``error`` is what it raised, if it did. It was not ``attempted`` if it does not run
    on the device. ``spent`` ends the process, which has used the device.
    """

    error: str = ""
    attempted: bool = True
    spent: bool = False


@dataclass(frozen=True)
class ExceptionInfo:
    """An exception, in words, and whether it says that memory has run out. ``code`` is that of a KeelError, ``aspect``
    what such a one says is wrong of a result: its strides, say.
    """

    phase: Phase
    text: str
    memory: bool = False
    code: str = ""
    aspect: str = ""


@dataclass
class CaseResult:
    """What a backend did with one case.

    ``refusals`` says why the backend took no part of the case, or why it left pieces of it to others. ``faults`` can
    only be seen where the case ran: memory that was written to, and results that share memory although they must not.
    ``nondeterministic`` lists the results whose bits differ when the call is repeated. ``types`` are the traced types
    of the results, for a device whose results may have other types than the host's; None for a result whose sizes only
    a run tells.
    """

    case: str
    claimed: bool = True
    refusals: str = ""
    faults: list[Fault] = field(default_factory=list)
    nondeterministic: list[int] = field(default_factory=list)
    types: tuple[TensorType | None, ...] = ()
    exception: ExceptionInfo | None = None
    seconds: float = 0.0


@dataclass
class RunResponse:
    """``exception`` is what ended the batch before anything was written to the file. ``clock`` has the seconds of the
    backend (``backend``), of drawing arguments (``drawing``), and all (``all``); see Clock. ``device`` is where the
    backend works, ``arithmetic`` what it declares of that. ``spent`` says that the device no longer answers the
    process, which then ran only the first case.
    """

    results: list[CaseResult]
    exception: ExceptionInfo | None = None
    clock: dict[str, float] = field(default_factory=dict)
    device: str = HOST
    spent: bool = False
    arithmetic: Arithmetic = IEEE


@dataclass(frozen=True)
class JudgeRequest:
    """Judge what a process with ``threads`` left in ``file``; or the one case that it raised at."""

    cases: tuple[Case, ...]
    response: RunResponse
    file: str
    threads: int = 1


@dataclass
class JudgeResponse:
    """``clock`` has the seconds of the oracles (``judging``), of drawing arguments (``drawing``), and all (``all``).
    ``spent`` says that the device on which eager PyTorch ran no longer answers the process.
    """

    verdicts: list[Verdict]
    clock: dict[str, float] = field(default_factory=dict)
    spent: bool = False
