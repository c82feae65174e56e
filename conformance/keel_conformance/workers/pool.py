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

ReportPhase = Callable[[str], None]
Work = Callable[[Any, ReportPhase], Any]
"""A function of a module. Takes a job, and what to tell of its progress; returns a row, which can be pickled. One whose
``spent`` is true is the process's last.
"""


def must_retire(row: Any) -> bool:
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
    """A process in a session of its own. ``wait(seconds)`` waits at most that long and returns its exit status, or
    None if it still runs.
    """

    pid: int
    wait: Callable[[float], int | None]


Start = Callable[[Any, Connection, Path], Process]
"""Starts a process for a job. The process then takes further jobs from the connection until no more come. It reports
through the connection what it does, and prints into ``log`` in the folder.
"""


@dataclass
class _Worker:
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

    def read_messages(self) -> bool:
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

    def start(self, job: Any, limit: float) -> None:
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


class WorkerPool:
    """At most ``size`` processes that each take one job after another, or end after one (``once``).

    What dies, or has a job for longer than it may, costs that job, and is replaced by the next job. A failure ends with
    as many of the ``last_lines`` that the process printed during the job.
    """

    def __init__(self, start: Start, size: int = 1, *, once: bool = False, last_lines: int = 3):
        self._start, self._size, self._once, self._last = start, size, once, last_lines
        self._workers: list[_Worker] = []
        self._top = TemporaryDirectory(prefix="keel-workers-")

    @property
    def busy(self) -> int:
        return sum(not worker.idle for worker in self._workers)

    @property
    def free(self) -> int:
        return self._size - self.busy

    @property
    def pipes(self) -> Sequence[Connection]:
        """What may be waited for: each is ready when ``poll`` has something to look at."""
        return [worker.pipe for worker in self._workers if not worker.idle]

    def submit(self, job: Any, limit: float, *, fresh: bool = False) -> None:
        """Has the job done within ``limit`` seconds by a process that is free, or by a ``fresh`` one."""
        for worker in [h for h in self._workers if h.idle]:
            if fresh or worker.process.wait(0) is not None:
                self._remove(worker)
            else:
                worker.start(job, limit)
                return
        folder = Path(mkdtemp(dir=self._top.name))
        ours, theirs = Pipe()
        with theirs:
            worker = _Worker(self._start(job, theirs, folder), ours, folder, job, limit)
        self._workers.append(worker)
        worker.start(job, limit)
        if self._once:
            with suppress(OSError):
                ours.send(None)

    def poll(self, seconds: float = 0.0) -> list[tuple[Any, Outcome]]:
        """The jobs that have ended, with their outcomes; waits up to ``seconds`` for one."""
        if seconds:
            wait(self.pipes, timeout=seconds)
        results: list[tuple[Any, Outcome]] = []
        for worker in [h for h in self._workers if not h.idle]:
            late = time.monotonic() - worker.begin > worker.limit
            if worker.read_messages() and worker.done is None and not late and worker.process.wait(0) is None:
                continue
            if worker.done is not None and not self._once:
                results.append((worker.job, Outcome(worker.done[0], seconds=time.monotonic() - worker.begin)))
                worker.idle = not must_retire(worker.done[0])
                if not worker.idle:
                    self._remove(worker)
            else:
                results.append((worker.job, _outcome(worker, late, self._last)))
                self._remove(worker)
        return results

    def close(self) -> None:
        """Ends all processes, whatever they are at; one that is at nothing ends itself, and tidies up."""
        idle = [worker for worker in self._workers if worker.idle]
        for worker in idle:
            with suppress(OSError):
                worker.pipe.send(None)
        for worker in idle:
            worker.process.wait(GRACE)
        for worker in list(self._workers):
            self._remove(worker)
        self._top.cleanup()

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        stop(worker.process)
        worker.pipe.close()
        shutil.rmtree(worker.folder, ignore_errors=True)


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
    with closing(WorkerPool(start, at_once, once=True, last_lines=last_lines)) as pool:
        while not stopped():
            for job in islice(left, pool.free):
                pool.submit(job, time_limit)
            if not pool.busy:
                return
            for job, outcome in pool.poll(0.5):
                if outcome.row is not None or not stopped():
                    yield job, outcome


def stop(process: Process) -> None:
    """Ends the process and whatever it started and left behind: they are a session of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not become the leader of its session yet
        if process.wait(0) is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    process.wait(GRACE)


def _outcome(worker: _Worker, late: bool, last_lines: int) -> Outcome:
    """What came of a process that has said all, has ended, or has reached its limit."""
    late = late and worker.done is None
    status = worker.process.wait(0 if late else GRACE)
    worker.read_messages()  # what it said between the last look and its end
    stop(worker.process)
    seconds = time.monotonic() - worker.begin
    lines = worker.log.read_text(errors="replace").splitlines() if worker.log.exists() else []
    if worker.done is not None and status in (0, None):
        return Outcome(worker.done[0], seconds=seconds)
    doing = worker.doing if worker.done is None else "ending"
    last = [line for line in lines if line.strip()][-last_lines:]
    return Outcome(
        None,
        " ".join([f"It {_how_it_ended(status, worker.limit if late else None)} while {doing}.", *last]),
        doing,
        seconds,
        _end_code(status),
    )


def _how_it_ended(status: int | None, limit: float | None) -> str:
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


def _end_code(status: int | None) -> str:
    return "late" if status is None else signal.Signals(-status).name if status < 0 else "exit"
