"""A process that may crash, hang or run out of memory: it does one job after another, and is replaced when it dies."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

PRELOAD = "keel.minify.trial_preload"
"""The module that the server of these processes imports before it forks them."""
MEMORY = 4 << 30
"""Bytes of memory that a process may have in addition to those that it starts with."""
TAIL = 300
QUIET, TICK = 8.0, 0.5
"""Seconds without any CPU time after which a process hangs, and between two looks."""
GRACE = 5.0
"""Seconds in which a process without work ends."""


@dataclass(frozen=True)
class Outcome:
    """What a job returned, or the ``end`` of its process: ``hang``, ``memory``, or ``crash``, with a sentence."""

    result: Any = None
    end: str = ""
    sentence: str = ""
    detail: str = ""


class TrialProcess:
    """Runs functions of modules on data that can be pickled. ``environment`` is added to that of the process."""

    def __init__(self, memory: int = MEMORY, environment: dict[str, str] | None = None) -> None:
        self._memory, self._environment = memory, environment or {}
        self._context = multiprocessing.get_context("forkserver")
        self._process: Any = None
        self._pipe: Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        seconds: float,
        limits: Mapping[str, float] = MappingProxyType({}),
    ) -> Outcome:
        """The outcome of ``function(*args, say)``, where ``say`` notes what the job does. It hangs if one of these
        things takes more CPU time than ``limits`` says, or ``seconds``, or none for as long or for ``QUIET`` seconds;
        then the process is ended.
        """
        pipe = self._started()
        doing, watch = "starting", _Watch(self._process.pid, seconds)
        try:
            pipe.send_bytes(pickle.dumps((function, args)))
            while True:
                if not pipe.poll(TICK):
                    if watch.is_hanging():
                        break
                    continue
                what, value = pickle.loads(pipe.recv_bytes())
                if what == "doing":
                    doing, watch = value, _Watch(self._process.pid, limits.get(value, seconds))
                    continue
                if what == "raised":
                    self.close_process()
                    return Outcome(None, "raised", value)
                return Outcome(value)
        except (EOFError, OSError):
            return self._died(doing)
        self.close_process()
        return Outcome(None, "hang", f"It does not end while {doing}.", doing)

    def _started(self) -> Connection:
        if self._process is not None and self._process.is_alive() and self._pipe is not None:
            return self._pipe
        self.close_process()
        ours, theirs = multiprocessing.Pipe()
        self._context.set_forkserver_preload([PRELOAD])
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="keel-minify-")
        log = str(self._log)
        args = (theirs, log, self._memory, self._environment, [*sys.path, os.getcwd()])
        self._process = self._context.Process(target=_serve, args=args, daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours

    def _died(self, doing: str) -> Outcome:
        self._process.join(5)
        code = self._process.exitcode
        self.close_process()
        if code == -signal.SIGKILL:
            return Outcome(None, "memory", f"The system ended its process, which used too much memory, while {doing}.")
        how = f"died of {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with status {code}"
        sentence = f"Its process {how} while {doing}. {self._last_line()}".rstrip()
        return Outcome(None, "crash", sentence, f"{how} while {doing}")

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, "log")

    def _last_line(self) -> str:
        with suppress(OSError, IndexError):
            return self._log.read_text(errors="replace").strip().splitlines()[-1][:TAIL]
        return ""

    def close_process(self) -> None:
        """Ends the process, whatever it does, and the processes that it started."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None and self._process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(ProcessLookupError, AttributeError):
                self._process.kill()
            self._process.join(5)
        self._pipe = self._process = None

    def close(self) -> None:
        """Ends the process and removes what it wrote. It may end by itself and give back what it holds, such as
        semaphores, which Python reports as leaked otherwise.
        """
        if self._pipe is not None and self._process is not None:
            self._pipe.close()
            self._process.join(GRACE)
        self.close_process()
        if self._folder is not None:
            self._folder.cleanup()


class _Watch:
    """Whether a process and those that it started make progress. CPU time does not depend on what else runs here."""

    def __init__(self, group: int, seconds: float) -> None:
        self._group, self._seconds = group, seconds
        self._first = self._used = _cpu_seconds(group)
        self._progress = time.monotonic()

    def is_hanging(self) -> bool:
        """True if the time is over, or if there was no progress for a while."""
        used, now = _cpu_seconds(self._group), time.monotonic()
        if used - self._used > TICK / 50:
            self._used, self._progress = used, now
        return used - self._first > self._seconds or now - self._progress > min(QUIET, self._seconds)


def _cpu_seconds(group: int) -> float:
    """The CPU time of all processes in a process group."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            words = stat.read_text().rpartition(")")[2].split()
            if int(words[2]) == group:
                ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _serve(pipe: Connection, log: str, memory: int, environment: dict[str, str], path: list[str]) -> None:
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.update(environment)
    sys.path[:] = path
    gc.freeze()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory(memory)
    while True:
        try:
            function, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer: tuple[str, Any] = (
                "done",
                function(*args, lambda text: pipe.send_bytes(pickle.dumps(("doing", text)))),
            )
        except Exception as e:
            answer = ("raised", f"{type(e).__name__}: {e}"[:2000])
        pipe.send_bytes(pickle.dumps(answer))


def _limit_memory(more: int) -> None:
    """Limits what this process may write to, so that one that hungers ends before the machine does. Its address space
    has no limit: drivers of devices reserve much more of it than they use.
    """
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + more, most))
