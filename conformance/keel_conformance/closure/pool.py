"""Disposable processes: each job runs in one of its own, which may crash, abort or hang without harm to the others.

The processes are forked from a server that has everything imported, so one costs milliseconds and not ten seconds.
"""
from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

LAST_LINES = 3

Tell = Callable[[str], None]
Work = Callable[[Any, Tell], Any]
"""Takes a job, and what to tell of its progress; returns something that can be pickled."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: with a ``result``, or with a ``failure`` in words while it was ``doing`` something."""

    result: Any = None
    failure: str = ""
    doing: str = ""
    seconds: float = 0.0


@dataclass
class _Running:
    job: Any
    process: Any
    pipe: Connection
    log: Path
    begin: float = field(default_factory=time.monotonic)
    doing: str = "starting"
    result: tuple[Any] | None = None

    def listen(self) -> bool:
        """Takes in what it says; False once it says no more."""
        try:
            while self.pipe.poll():
                match self.pipe.recv():
                    case ("doing", str(text)):
                        self.doing = text
                    case ("done", result):
                        self.result = (result,)
        except (EOFError, OSError):
            return False
        return self.result is None


def run_all(jobs: Iterable[Any], work: Work, *, at_once: int = 1, time_limit: float = 600.0,
            preload: str | None = None) -> Iterator[tuple[Any, Ended]]:
    """Each job with how it ended, as they end. ``work`` is a function of a module; ``preload`` names a module that the
    server imports first.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload] if preload else [])
    left, running = iter(jobs), list[_Running]()
    with tempfile.TemporaryDirectory(prefix="keel-closure-") as folder:
        try:
            while True:
                for job in _some(left, at_once - len(running)):
                    running.append(_started(context, job, work, Path(folder)))
                if not running:
                    return
                wait([r.pipe for r in running], timeout=0.5)
                for r in list(running):
                    late = time.monotonic() - r.begin > time_limit
                    if r.listen() and not late:
                        continue
                    running.remove(r)
                    yield r.job, _ended(r, late, time_limit)
        finally:
            for r in running:
                r.process.kill()


def _some(jobs: Iterator[Any], most: int) -> Iterator[Any]:
    for _ in range(most):
        try:
            yield next(jobs)
        except StopIteration:
            return


def _started(context: Any, job: Any, work: Work, folder: Path) -> _Running:
    ours, theirs = context.Pipe(duplex=False)
    log = Path(tempfile.mkstemp(dir=folder)[1])
    process = context.Process(target=_child, args=(theirs, job, work, str(log)), daemon=True)
    process.start()
    theirs.close()
    return _Running(job, process, ours, log)


def _child(pipe: Connection, job: Any, work: Work, log: str) -> None:
    gc.freeze()                                               # not to copy all that was imported by looking through it
    file = os.open(log, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout = sys.stderr = open(file, "w", buffering=1, closefd=False)  # noqa: SIM115
    pipe.send(("done", work(job, lambda text: pipe.send(("doing", text)))))


def _ended(r: _Running, late: bool, time_limit: float) -> Ended:
    if late and r.result is None:
        r.process.kill()
    # A process that has said all may still hang in its own end.
    r.process.join(5)
    if r.process.is_alive():
        r.process.kill()
        r.process.join()
    r.pipe.close()
    seconds = time.monotonic() - r.begin
    if r.result is not None:
        r.log.unlink()
        return Ended(r.result[0], seconds=seconds)
    with contextlib.suppress(ValueError):
        said = [line for line in r.log.read_text(errors="replace").splitlines() if line.strip()]
    r.log.unlink()
    code = r.process.exitcode
    how = (f"did not end within {time_limit:g} s" if late else
           f"died of {signal.Signals(-code).name}" if code is not None and code < 0 else "raised")
    return Ended(failure=" ".join([f"It {how} while {r.doing}.", *said[-LAST_LINES:]]), doing=r.doing, seconds=seconds)
