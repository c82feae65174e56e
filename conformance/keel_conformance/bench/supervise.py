"""Runs each job in a fresh process with empty caches: a job that crashes or hangs costs its own row and no other."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from . import run_time, traffic
from .jobs import Job, Outcome

TIME_LIMIT = 1800.0  # seconds, for one job
LAST_LINES = 8


def run_all(jobs: Sequence[Job], done: Callable[[Job, Outcome], None],
            time_limit: float = TIME_LIMIT, at_once: int = 1) -> dict[Job, Outcome]:
    """Every job's outcome, ``at_once`` processes at a time; ``done`` is told of each as it ends.

    Only the jobs that measure compile time start with empty caches. The others share caches that start empty with the
    bench, so that what Inductor prepares once for a machine is prepared once.
    """
    with TemporaryDirectory(prefix="keel-bench-") as shared, ThreadPoolExecutor(at_once) as pool:
        def one(job: Job) -> Outcome:
            outcome = run_one(job, time_limit, None if job.part == "compile" else Path(shared))
            done(job, outcome)
            return outcome
        return dict(zip(jobs, pool.map(one, jobs), strict=True))


def run_one(job: Job, time_limit: float = TIME_LIMIT, caches: Path | None = None) -> Outcome:
    """The job's figures; a failure in words if its process raised, died or took longer than ``time_limit`` seconds.

    ``caches`` is the folder of the compilers' caches; without it they start empty.
    """
    start = time.monotonic()
    with TemporaryDirectory(prefix="keel-bench-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job.as_json()))
        command = [sys.executable, "-m", "keel_conformance.bench.worker", "job.json", "figures.json"]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=folder, env=environment(job, caches or folder), stdout=log,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(time_limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                stop(process)
        failure = trouble(status, time_limit, (folder / "log").read_text(errors="replace"))
        figures = None if failure else json.loads((folder / "figures.json").read_text())
    return Outcome(figures, failure, time.monotonic() - start)


def environment(job: Job, caches: Path) -> dict[str, str]:
    """Caches in ``caches``, no network, and Inductor compiling in the process: its CPU seconds are counted there."""
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "KEEL_CACHE_DIR": str(caches / "keel"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        **({"TORCHINDUCTOR_COMPILE_THREADS": "1"} if job.device == "cpu" else {}),
        run_time.LOCK: str(caches / "lock"),
        "OMP_NUM_THREADS": str(job.threads),
        "HF_HUB_OFFLINE": "1",
        **(traffic.ENVIRONMENT if job.part == "traffic" else {}),
    }


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and whatever it started and left behind: they are a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def trouble(status: int | None, time_limit: float, log: str) -> str:
    """What went wrong, in a sentence and the last lines of the log; '' if nothing did."""
    tail = "\n".join([line for line in log.splitlines() if line.strip()][-LAST_LINES:])
    match status:
        case 0:
            return ""
        case None:
            return f"did not end within {time_limit:g} s.\n{tail}"
        case _ if status < 0:
            return f"died of {signal.Signals(-status).name}.\n{tail}"
    return f"raised.\n{tail}"
