"""Jobs in processes that may crash, abort or hang: that costs the job that such a process was at, and no other."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

GRACE = 5.0
"""Seconds that a process has to end in once it has said all; one that hangs there keeps its row."""

STARTING = "starting"
"""What a process is doing before it tells anything."""

Tell = Callable[[str], None]
Work = Callable[[Any, Tell], Any]
"""A function of a module. Takes a job, and what to tell of its progress; returns a row, which can be pickled. One whose
``spent`` is true is the process's last.
"""


def spent(row: Any) -> bool:
    """Whether it is the last of its process."""
    return bool(getattr(row, "spent", False))


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its ``row``, or with a ``failure`` in words while its process was ``doing`` something.

    ``end`` says of a failure what ended it: ``late`` (its limit), the name of a signal, or ``exit``.
    """

    row: Any
    failure: str = ""
    doing: str = ""
    seconds: float = 0.0
    end: str = ""

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
"""Starts a process for a job and for those that may follow, which it takes from the connection until there is none. It
says through the connection what it does, and prints into ``log`` in the folder.
"""


@dataclass
class _Hand:
    """A process, with the job it is at."""

    process: Process
    pipe: Connection
    folder: Path
    job: Any
    limit: float
    begin: float = field(default_factory=time.monotonic)
    doing: str = STARTING
    done: tuple[Any] | None = None
    idle: bool = False

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def listen(self) -> bool:
        """Takes in what it says; False once it says no more."""
        try:
            while self.pipe.poll():
                match self.pipe.recv():
                    case ("doing", str(text)):
                        self.doing = text
                    case ("done", row):
                        self.done = (row,)
                        return True
        except (EOFError, OSError):
            return False
        return True

    def take(self, job: Any, limit: float) -> None:
        """Goes on with another job."""
        self.job, self.limit, self.begin, self.doing, self.done, self.idle = (
            job,
            limit,
            time.monotonic(),
            STARTING,
            None,
            False,
        )
        if self.log.exists():
            os.truncate(self.log, 0)
        with suppress(OSError):  # a process that has died is found where all are
            self.pipe.send((job,))


class Crew:
    """At most ``size`` processes that each take one job after another, or end after one (``once``).

    What dies, or has a job for longer than it may, costs that job, and is replaced by the next job. A failure ends with
    as many of the ``last_lines`` that the process printed during the job.
    """

    def __init__(self, start: Start, size: int = 1, *, once: bool = False, last_lines: int = 3):
        self._start, self._size, self._once, self._last = start, size, once, last_lines
        self._hands: list[_Hand] = []
        self._top = TemporaryDirectory(prefix="keel-workers-")

    @property
    def busy(self) -> int:
        return sum(not hand.idle for hand in self._hands)

    @property
    def free(self) -> int:
        return self._size - self.busy

    @property
    def pipes(self) -> Sequence[Connection]:
        """What may be waited for: each is ready when ``ended`` has something to look at."""
        return [hand.pipe for hand in self._hands if not hand.idle]

    def give(self, job: Any, limit: float, *, fresh: bool = False) -> None:
        """Has the job done within ``limit`` seconds by a process that is free, or by a ``fresh`` one."""
        for hand in [h for h in self._hands if h.idle]:
            if fresh or hand.process.ended(0) is not None:
                self._dismiss(hand)
            else:
                hand.take(job, limit)
                return
        folder = Path(mkdtemp(dir=self._top.name))
        ours, theirs = Pipe()
        with theirs:
            hand = _Hand(self._start(job, theirs, folder), ours, folder, job, limit)
        self._hands.append(hand)
        hand.take(job, limit)
        if self._once:
            with suppress(OSError):
                ours.send(None)

    def ended(self, seconds: float = 0.0) -> list[tuple[Any, Outcome]]:
        """The jobs that have ended, with their outcomes; waits for so many seconds until there may be one."""
        if seconds:
            wait(self.pipes, timeout=seconds)
        found: list[tuple[Any, Outcome]] = []
        for hand in [h for h in self._hands if not h.idle]:
            late = time.monotonic() - hand.begin > hand.limit
            if hand.listen() and hand.done is None and not late and hand.process.ended(0) is None:
                continue
            if hand.done is not None and not self._once:
                found.append((hand.job, Outcome(hand.done[0], seconds=time.monotonic() - hand.begin)))
                hand.idle = not spent(hand.done[0])
                if not hand.idle:
                    self._dismiss(hand)
            else:
                found.append((hand.job, _outcome(hand, late, self._last)))
                self._dismiss(hand)
        return found

    def close(self) -> None:
        """Ends all processes, whatever they are at; one that is at nothing ends itself, and tidies up."""
        idle = [hand for hand in self._hands if hand.idle]
        for hand in idle:
            with suppress(OSError):
                hand.pipe.send(None)
        for hand in idle:
            hand.process.ended(GRACE)
        for hand in list(self._hands):
            self._dismiss(hand)
        self._top.cleanup()

    def _dismiss(self, hand: _Hand) -> None:
        self._hands.remove(hand)
        stop(hand.process)
        hand.pipe.close()
        shutil.rmtree(hand.folder, ignore_errors=True)


def run_all(
    jobs: Iterable[Any],
    start: Start,
    *,
    at_once: int = 1,
    time_limit: float = 600.0,
    last_lines: int = 3,
    stopped: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Any, Outcome], None, None]:
    """Each job, in a process of its own, with its outcome, as they end, until ``stopped``; what runs then is ended
    without one, and what failed then has none, either: what stops this process may have stopped it.
    """
    left = iter(jobs)
    with closing(Crew(start, at_once, once=True, last_lines=last_lines)) as crew:
        while not stopped():
            for job in islice(left, crew.free):
                crew.give(job, time_limit)
            if not crew.busy:
                return
            for job, outcome in crew.ended(0.5):
                if outcome.row is not None or not stopped():
                    yield job, outcome


def stop(process: Process) -> None:
    """Ends the process and whatever it started and left behind: they are a session of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not become the leader of its session yet
        if process.ended(0) is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    process.ended(GRACE)


def _outcome(hand: _Hand, late: bool, last_lines: int) -> Outcome:
    """What came of a process that has said all, has ended, or has reached its limit."""
    late = late and hand.done is None
    status = hand.process.ended(0 if late else GRACE)
    hand.listen()  # what it said between the last look and its end
    stop(hand.process)
    seconds = time.monotonic() - hand.begin
    said = hand.log.read_text(errors="replace").splitlines() if hand.log.exists() else []
    if hand.done is not None and status in (0, None):
        return Outcome(hand.done[0], seconds=seconds)
    doing = hand.doing if hand.done is None else "ending"
    last = [line for line in said if line.strip()][-last_lines:]
    return Outcome(
        None,
        " ".join([f"It {_how(status, hand.limit if late else None)} while {doing}.", *last]),
        doing,
        seconds,
        _end(status),
    )


def _how(status: int | None, limit: float | None) -> str:
    match status:
        case None if limit is not None:
            return f"did not end within {limit:g} s"
        case None:
            return "fell silent"
        case 0:
            return "ended early"
        case _ if status < 0:
            return f"died of {signal.Signals(-status).name}"
    return "raised"


def _end(status: int | None) -> str:
    return "late" if status is None else signal.Signals(-status).name if status < 0 else "exit"
