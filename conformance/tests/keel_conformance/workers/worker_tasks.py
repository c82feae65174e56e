"""What jobs of the workers' tests do; it is imported by the processes that do it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keel_conformance.workers.pool import ReportPhase


@dataclass(frozen=True)
class Task:
    name: str


class Tired(str):
    """A row after which its process does no more."""

    spent = True


def row(job: Task, row: Any) -> Any:
    return row


def goes_on(pid: str) -> bool:
    """Whether a process is more than a zombie, which nobody has waited for."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] not in ("", "Z")


def do(job: str | Task, tell: ReportPhase) -> str:
    name = job if isinstance(job, str) else job.name
    tell(f"working on {name}")
    match name.split():
        case ["abort"]:
            os.kill(os.getpid(), signal.SIGABRT)
        case ["exit"]:
            os._exit(3)
        case ["hang", *file]:
            for name in file:  # so that the test knows that it hangs
                Path(name).write_text(str(os.getpid()))
            time.sleep(600)
        case ["freeze", file]:  # in native code, with the interpreter's lock
            Path(file).write_text(str(os.getpid()))
            ctypes.PyDLL(None).sleep(600)
        case ["raise"]:
            raise ValueError("a sentence")
        case ["leave", file]:
            left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(file).write_text(str(left.pid))
        case ["speak"]:
            print("last words", flush=True)
            os._exit(4)
        case ["mumble"]:
            print("of no interest", flush=True)
        case ["pid"]:
            return str(os.getpid())
        case ["tire"]:
            return Tired(str(os.getpid()))
        case ["see", variable]:
            return f"{os.environ.get(variable)} in {Path.cwd().name}, {'torch' in sys.modules}"
    return name.upper()
