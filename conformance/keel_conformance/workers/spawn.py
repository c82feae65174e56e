"""Two ways to start a process for jobs: forked from a server that has all imported, or fresh, in an environment."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

from .pool import Process, Start, Work, must_retire

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
YOUNG = 20_000
"""Objects between collections in a forked process, where those that were there before it count as none: with the 700 of
Python all of its own would be looked through many times, which takes half of the time that domains are made in.
"""

Environment = Callable[[Any, Path], Mapping[str, str]]
"""The whole environment of a job, whose process has the folder to itself."""


def forked(work: Work, preload: str | None = None) -> Start:
    """Costs milliseconds and not ten seconds. ``preload`` names a module that the server imports before it forks."""
    context = multiprocessing.get_context("forkserver")

    def start(job: Any, pipe: Connection, folder: Path) -> Process:
        context.set_forkserver_preload([preload] if preload else [])
        process = context.Process(target=_forked, args=(pipe, work, str(folder / "log")), daemon=True)
        process.start()
        assert process.pid is not None

        def ended(seconds: float) -> int | None:
            process.join(seconds)
            return process.exitcode

        return Process(process.pid, ended)

    return start


def _forked(pipe: Connection, work: Work, log: str) -> None:
    os.setsid()  # Ctrl-C is for who started it, and its end is everybody's
    _end_with_parent()
    os.environ["KEEL_GRAPH_CACHE"] = "0"  # a case judges what is compiled now
    gc.freeze()  # not to copy all that was imported by looking through it
    gc.set_threshold(YOUNG)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout = sys.stderr = open(file, "w", buffering=1, closefd=False)  # noqa: SIM115
    serve(pipe, work)


def fresh(work: Work, environment: Environment) -> Start:
    """A Python of its own that has imported nothing yet, in the folder."""

    def start(job: Any, pipe: Connection, folder: Path) -> Process:
        (folder / "work").write_bytes(pickle.dumps(work))
        command = [sys.executable, "-m", __name__, str(pipe.fileno()), "work"]
        with (folder / "log").open("a") as log:  # each job truncates it
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment(job, folder),
                pass_fds=(pipe.fileno(),),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def ended(seconds: float) -> int | None:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None

        return Process(process.pid, ended)

    return start


def serve(pipe: Connection, work: Work) -> None:
    """Does the jobs that come, until None does or its row says that the process is ``spent``."""
    Thread(target=_end_with_reader, args=(pipe.fileno(),), daemon=True).start()
    while (request := pipe.recv()) is not None:
        row = work(request[0], lambda text: pipe.send(("doing", text)))
        pipe.send(("done", row))
        if must_retire(row):
            return


def _end_with_reader(descriptor: int) -> None:
    """Whoever started this process may be killed: then nobody listens, and its session ends, too."""
    closed = select.poll()
    closed.register(descriptor, 0)
    ((_, event),) = closed.poll()
    if event != select.POLLNVAL:  # this process closed it itself: it ends as it should
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with_parent() -> None:
    """The same, of a process that hangs in native code and lets no thread run: it ends with its server, which ends when
    nobody holds its pipe. A process is given that pipe for processes of its own; it makes none this way.
    """
    server: Any = forkserver._forkserver
    os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def main(descriptor: str, work_file: str) -> None:
    os.set_inheritable(int(descriptor), False)  # a child that outlives this process must not write to its pipe
    work = pickle.loads(Path(work_file).read_bytes())
    serve(Connection(int(descriptor)), work)


if __name__ == "__main__":
    main(*sys.argv[1:])
