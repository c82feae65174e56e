"""The first import of a plugin: in a process of its own, under a time limit, and remembered by the plugin's files.

So a package that ends the process, hangs or crashes when it is imported does so there.  This protects against mistakes;
a package that means harm can do it later.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import IO

from keel.cache import Cache

LIMIT = 60.0
"""Seconds that an import may take, PyTorch's own included."""
SWITCH = "KEEL_QUARANTINE"
"""The environment variable that turns this off where it is 0, as it is in such a process: none starts another."""
_GRACE = 10.0
"""Seconds that the process may take to end after the import."""
_LARGE = 1 << 24
"""Bytes from which on a file counts by its size and times and not by its content."""
_MAX_OUTPUT = 1 << 16
"""Bytes that are kept of what a plugin prints and reports."""
_CODE = (".py", ".so", ".pyd", ".dylib", ".dll")
"""What counts of a package that was not installed with a list of its files: others, it may write itself."""
_MOST = 10_000
"""Files of a folder that count: more are those of a namespace of many packages."""
_PAUSE = 0.02
_CHILD = Path(__file__).with_name("child.py")
_CACHE = Cache("plugin", ".json")


@dataclass(frozen=True)
class Report:
    """How an import went: ``problem`` is a sentence on what it did to its process, ``last_output`` what it printed
    last; ``raised`` is what it raised instead, ``trace`` the traceback of that. With neither, it is good. ``stopped``
    has the seconds after which it was stopped because it had not ended, 0 where it was not.
    """

    problem: str = ""
    last_output: str = ""
    raised: str = ""
    trace: str = ""
    stopped: float = 0.0


def first_imports(points: Sequence[EntryPoint], *, limit: float = LIMIT, again: bool = False) -> list[Report]:
    """How each entry point is imported: as is remembered, unless ``again``, or by importing it in a process of its own
    for at most ``limit`` seconds, several at once.

    What is imported already, and what is asked for in such a process, counts as good.  What an import raises is not
    remembered, for it may be repaired outside of the package; that it took too long counts for limits up to that one.
    """
    keys = [_keys(point) if _unknown(point) else None for point in points]
    known = [Report() if key is None else None if again else _recalled(key, limit) for key in keys]
    todo = [i for i, report in enumerate(known) if report is None]
    for i, report in zip(todo, _run([points[i] for i in todo], limit), strict=True):
        if (key := keys[i]) is not None and not report.raised:
            for each in key:
                _CACHE.put(each(), json.dumps(asdict(report)).encode())
        lost = report.raised == f"ModuleNotFoundError: No module named {points[i].module.partition('.')[0]!r}"
        known[i] = Report() if lost else report  # this process may find it where only it looks
    return [report or Report() for report in known]


def _unknown(point: EntryPoint) -> bool:
    """Whether importing it here could hurt, and a process of its own can be started."""
    python = os.name == "posix" and Path(sys.executable or "").name.startswith(("python", "pypy"))
    return python and os.environ.get(SWITCH) != "0" and point.module not in sys.modules


# -- what is remembered ------------------------------------------------------------------------------------------------

Key = Callable[[], Sequence[str]]


def _keys(point: EntryPoint) -> tuple[Key, Key]:
    """What an import is remembered by: the quick one has the size and times of each file, the other its content, which
    stays when files are copied elsewhere.  Both have the versions of what the package requires.
    """
    files = _files(point)
    about = [sys.version, sys.executable, point.value, *_required(point)]
    return (
        lambda: [*about, *(f"{path} {_stat(path)}" for path in files)],
        lambda: [*about, *(f"{path} {_content(path)}" for path in files)],
    )


def _recalled(keys: tuple[Key, Key], limit: float) -> Report | None:
    quick, exact = keys
    if (data := _CACHE.get(quick())) is None and (data := _CACHE.get(exact())) is not None:
        _CACHE.put(quick(), data)
    if data is None:
        return None
    with suppress(ValueError, TypeError):
        report = Report(**json.loads(data))
        return None if 0 < report.stopped < limit else report
    return None


def _files(point: EntryPoint) -> list[Path]:
    """The files that were installed; where the package is not among them, as in an editable installation, its code."""
    files: set[Path] = set()
    with suppress(Exception):  # whatever a damaged installation makes its readers raise
        files |= {Path(str(file.locate())) for file in (point.dist and point.dist.files) or ()}
    with suppress(Exception):
        spec = find_spec(point.module.partition(".")[0])
        if spec is not None and (spec.origin is None or Path(spec.origin) not in files):
            files |= {Path(spec.origin)} if spec.origin else set()
            for place in spec.submodule_search_locations or ():
                files |= set(islice((f for f in Path(place).rglob("*") if f.suffix in _CODE), _MOST))
    return sorted(file for file in files if file.suffix != ".pyc")


def _required(point: EntryPoint) -> list[str]:
    """The package and what it requires, with the versions that are installed."""
    versions = []
    with suppress(Exception):
        for line in (point.dist and point.dist.requires) or ():
            name = line.split(";")[0].split("[")[0].strip("() ").split(" ")[0]
            name = name[: next((i for i, c in enumerate(name) if c in "<>=!~("), len(name))]
            with suppress(Exception):
                versions.append(f"{name} {version(name)}")
    return versions


def _stat(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return "none"
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"


def _content(path: Path) -> str:
    try:
        large = path.is_dir() or path.stat().st_size >= _LARGE
        return _stat(path) if large else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "none"


# -- a process of its own ----------------------------------------------------------------------------------------------


def _run(points: Sequence[EntryPoint], limit: float) -> list[Report]:
    """Imports each in a process of its own, as many at once as there are cores; none is left when this ends."""
    waiting, running = list(enumerate(points)), dict[int, _Process]()
    reports: dict[int, Report] = {}
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                i, point = waiting.pop(0)
                try:
                    running[i] = _Process(point, limit)
                except OSError:  # none can be started, which is not the plugin's doing
                    reports[i] = Report()
            for i in [i for i, process in running.items() if process.over()]:
                reports[i] = running.pop(i).report()
            if running:
                time.sleep(_PAUSE)
    finally:
        for process in running.values():
            process.end()
    return [reports[i] for i in range(len(points))]


class _Tail:
    """The last bytes that come out of a pipe, read in the background so that the writer never waits."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.kept = b""
        self.thread = Thread(target=self._read, args=(pipe,), daemon=True, name="keel-quarantine")
        self.thread.start()

    def _read(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError), pipe:
            while data := os.read(pipe.fileno(), _MAX_OUTPUT):
                self.kept = (self.kept + data)[-_MAX_OUTPUT:]


class _Process:
    """An import in a process of its own, in a session of its own, so that all that it starts ends with it."""

    def __init__(self, point: EntryPoint, limit: float) -> None:
        self.limit, self.late, self.ended = limit, False, False
        read, write = os.pipe()
        request = json.dumps({"path": sys.path, "module": point.module, "attributes": point.attr.split(".")})
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", str(_CHILD), str(write), request],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                start_new_session=True,
                env={**os.environ, SWITCH: "0"},
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self.deadline = time.monotonic() + limit
        assert self.process.stdout is not None
        self.printed, self.reported = _Tail(self.process.stdout), _Tail(os.fdopen(read, "rb"))

    def over(self) -> bool:
        """Whether it has ended, or must."""
        if self.reported.kept and not self.ended:  # all that is left to it is to end
            self.ended, self.deadline = True, time.monotonic() + _GRACE
        self.late = time.monotonic() > self.deadline
        return self.late or os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """Ends it and all that it started; its exit status.  Only then its number may go to another process."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    def report(self) -> Report:
        status = self.end()
        for tail in (self.reported, self.printed):  # what left the session may hold the pipe for longer
            tail.thread.join(1.0)
        output = self.printed.kept.decode(errors="replace").strip().splitlines()
        try:
            answer = json.loads(self.reported.kept)
            raised, trace = str(answer["raised"]), str(answer["trace"])
        except (ValueError, KeyError, TypeError):
            return self._dead(status, "when it was imported", output)
        if not raised and (self.late or status != 0):
            return self._dead(status, "after it was imported", output)
        return Report(raised=raised, trace=trace)

    def _dead(self, status: int, when: str, output: Sequence[str]) -> Report:
        return Report(self._death(status, when), output[-1] if output else "", stopped=self.limit if self.late else 0.0)

    def _death(self, status: int, when: str) -> str:
        if self.late:
            return (
                "does not let its process end"
                if self.ended
                else f"took longer than {self.limit:g} seconds to be imported"
            )
        if status < 0:
            try:
                return f"died of {signal.Signals(-status).name} {when}"
            except ValueError:
                return f"died of signal {-status} {when}"
        return f"ended its process with status {status} {when}"
