"""What a process is asked, and what it answers: plain data, beside the file that it leaves the results in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from keel import TensorType

from ..cases.case import Case
from ..devices import HOST
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
class Perform:
    """Run the cases, all of one operator and one kind, and leave what came of it in ``file``."""

    settings: Settings
    cases: tuple[Case, ...]
    file: str


@dataclass(frozen=True)
class Raised:
    """An exception, in words, and whether it says that memory has run out. ``code`` is that of a KeelError, ``aspect``
    what such a one says is wrong of a result: its strides, say.
    """

    phase: Phase
    text: str
    memory: bool = False
    code: str = ""
    aspect: str = ""


@dataclass
class Tried:
    """One case. ``refusals`` says why nothing of it was the backend's, where nothing was. ``faults`` are what can only
    be seen where it ran: what was written to, and what shares memory that must not. ``unlike`` are the results that
    have other bits when the same call is made again. ``types`` are those that PyTorch traced of the results, where the
    backend works on a device whose results may be of others than the host's; None of those whose sizes a run tells.
    """

    case: str
    claimed: bool = True
    refusals: str = ""
    faults: list[Fault] = field(default_factory=list)
    unlike: list[int] = field(default_factory=list)
    types: tuple[TensorType | None, ...] = ()
    raised: Raised | None = None
    seconds: float = 0.0


@dataclass
class Performed:
    """``raised`` is what ended them all, before anything was left in the file. ``clock`` has the seconds of the backend
    (``backend``), of drawing arguments (``drawing``), and all (``all``); see Clock. ``device`` is where the backend
    works. ``spent`` says that this no longer answers the process, which then has tried only the first of its cases.
    """

    tried: list[Tried]
    raised: Raised | None = None
    clock: dict[str, float] = field(default_factory=dict)
    device: str = HOST
    spent: bool = False


@dataclass(frozen=True)
class Appraise:
    """Judge what a process with ``threads`` left in ``file``; or the one case that it raised at."""

    cases: tuple[Case, ...]
    performed: Performed
    file: str
    threads: int = 1


@dataclass
class Appraised:
    """``clock`` has the seconds of the oracles (``judging``), of drawing arguments (``drawing``), and all (``all``).
    ``spent`` says that the device on which eager PyTorch ran no longer answers the process.
    """

    verdicts: list[Verdict]
    clock: dict[str, float] = field(default_factory=dict)
    spent: bool = False


Answer = Any
"""Performed, or Appraised."""
