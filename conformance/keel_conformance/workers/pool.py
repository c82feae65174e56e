"""Each job in a process of its own, which may crash, abort or hang: it costs its own row and no other."""
from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

GRACE = 5.0
"""Seconds that a process has to end in once it has said all; one that hangs there keeps its row."""

Tell = Callable[[str], None]
Work = Callable[[Any, Tell], Any]
"""A function of a module. Takes a job, and what to tell of its progress; returns a row, which can be pickled."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its ``row``, or with a ``failure`` in words while its process was ``doing`` something."""

    row: Any
    failure: str = ""
    doing: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The outcome beside the figures of its row, in one plain mapping."""
        row = asdict(self.row) if is_dataclass(self.row) else self.row or {}  # type: ignore[arg-type]
        return {"failure": self.failure, "doing": self.doing, "elapsed": round(self.seconds, 2), **row}


@dataclass(frozen=True)
class Process:
    """A process in a session of its own. ``ended`` waits for so many seconds: its exit status, None if it goes on."""

    pid: int
    ended: Callable[[float], int | None]


Start = Callable[[Any, Connection, Path], Process]
"""Starts the process of a job, which says through the connection what it does and prints into ``log`` in the folder."""


@dataclass
class _Running:
    job: Any
    process: Process
    pipe: Connection
    folder: Path
    begin: float = field(default_factory=time.monotonic)
    doing: str = "starting"
    done: tuple[Any] | None = None

    def listen(self) -> bool:
        """Takes in what it says; False once it says no more."""
        try:
            while self.pipe.poll():
                match self.pipe.recv():
                    case ("doing", str(text)):
                        self.doing = text
                    case ("done", row):
                        self.done = (row,)
        except (EOFError, OSError):
            return False
        return self.done is None


def run_all(jobs: Iterable[Any], start: Start, *, at_once: int = 1, time_limit: float = 600.0, last_lines: int = 3,
            stopped: Callable[[], bool] = lambda: False) -> Generator[tuple[Any, Outcome], None, None]:
    """Each job with its outcome, as they end, until ``stopped``; what runs then is ended without one.

    A failure ends with as many of the ``last_lines`` that the process printed.
    """
    left, running = iter(jobs), list[_Running]()
    with TemporaryDirectory(prefix="keel-workers-") as top:
        try:
            while not stopped():
                for job in islice(left, at_once - len(running)):
                    running.append(_started(job, start, Path(mkdtemp(dir=top))))
                if not running:
                    return
                wait([r.pipe for r in running], timeout=0.5)
                for r in list(running):
                    late = time.monotonic() - r.begin > time_limit
                    if r.listen() and not late and r.process.ended(0) is None:
                        continue
                    running.remove(r)
                    yield r.job, _outcome(r, time_limit if late else None, last_lines)
        finally:
            for r in running:
                stop(r.process)


def _started(job: Any, start: Start, folder: Path) -> _Running:
    ours, theirs = Pipe(duplex=False)
    with theirs:
        return _Running(job, start(job, theirs, folder), ours, folder)


def stop(process: Process) -> None:
    """Ends the process and whatever it started and left behind: they are a session of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:                                # it has not become the leader of its session yet
        if process.ended(0) is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    process.ended(GRACE)


def _outcome(r: _Running, limit: float | None, last_lines: int) -> Outcome:
    """What came of a process that has said all, has ended, or has reached the ``limit``."""
    status = r.process.ended(0 if limit is not None and r.done is None else GRACE)
    r.listen()                                                # what it said between the last look and its end
    stop(r.process)
    r.pipe.close()
    seconds = time.monotonic() - r.begin
    log = r.folder / "log"
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    shutil.rmtree(r.folder, ignore_errors=True)
    if r.done is not None and status in (0, None):
        return Outcome(r.done[0], seconds=seconds)
    doing = r.doing if r.done is None else "ending"
    return Outcome(None, " ".join([f"It {_how(status, limit)} while {doing}.", *said[-last_lines:]]), doing, seconds)


def _how(status: int | None, limit: float | None) -> str:
    match status:
        case None if limit is not None:
            return f"did not end within {limit:g} s"
        case None:
            return "fell silent"
        case _ if status < 0:
            return f"died of {signal.Signals(-status).name}"
    return "raised"
