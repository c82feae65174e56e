"""Imports a new plugin first in a separate process, with a time limit; the result is cached by the plugin's files.

So a package that exits, hangs or crashes on import does so there. This protects against mistakes; a malicious package
can do harm later."""

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
"""The time limit of an import in seconds, including the import of PyTorch."""
SWITCH = "KEEL_QUARANTINE"
"""The environment variable that turns this off if it is 0.  It is 0 in such a process, so that none starts another."""
_GRACE = 10.0
"""The most seconds that the process may take to end after the import."""
_LARGE = 1 << 24
"""The size in bytes above which a file is identified by its size and times, not by its content."""
_KEPT = 1 << 16
"""The most bytes kept of what a plugin prints and reports."""
_CODE = (".py", ".so", ".pyd", ".dylib", ".dll")
"""The files that count if a package was installed without a list of its files: it may write others itself."""
_MOST = 10_000
"""The most files of a folder that count: a folder with more is a namespace of many packages."""
_PAUSE = 0.02
_CHILD = Path(__file__).with_name("child.py")
_CACHE = Cache("plugin", ".json")


@dataclass(frozen=True)
class Report:
    """The result of an import. ``problem`` is a sentence on what it did to its process, ``said`` its last output.
    ``raised`` is its exception, ``trace`` the traceback. Without a problem and an exception, the import is good.
    ``stopped`` has the seconds after which it was stopped because it had not ended, or 0."""

    problem: str = ""
    said: str = ""
    raised: str = ""
    trace: str = ""
    stopped: float = 0.0


def first_imports(points: Sequence[EntryPoint], *, limit: float = LIMIT, again: bool = False) -> list[Report]:
    """Returns the report on each entry point: from the cache unless ``again``, or by importing it in a separate process
    for at most ``limit`` seconds, several at once.

    A package that is already imported counts as good, as does any in such a process. An exception is not cached, since
    it may be fixed outside the package. A timeout is cached for limits up to that one."""
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
    """True if importing it here could do harm, and a separate process can be started."""
    python = os.name == "posix" and Path(sys.executable or "").name.startswith(("python", "pypy"))
    return python and os.environ.get(SWITCH) != "0" and point.module not in sys.modules


# -- what is remembered ------------------------------------------------------------------------------------------------

Key = Callable[[], Sequence[str]]


def _keys(point: EntryPoint) -> tuple[Key, Key]:
    """Returns the two cache keys of an import. The quick one has the size and times of each file; the other one has its
    content, which survives a copy of the files. Both include the versions of the required packages."""
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
    """Returns the installed files, or the package's code if it is not among them, as in an editable installation."""
    files: set[Path] = set()
    with suppress(Exception):  # reading a damaged installation may raise anything
        files |= {Path(str(file.locate())) for file in (point.dist and point.dist.files) or ()}
    with suppress(Exception):
        spec = find_spec(point.module.partition(".")[0])
        if spec is not None and (spec.origin is None or Path(spec.origin) not in files):
            files |= {Path(spec.origin)} if spec.origin else set()
            for place in spec.submodule_search_locations or ():
                files |= set(islice((f for f in Path(place).rglob("*") if f.suffix in _CODE), _MOST))
    return sorted(file for file in files if file.suffix != ".pyc")


def _required(point: EntryPoint) -> list[str]:
    """Returns the package and its requirements, with the installed versions."""
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
    """Imports each in a separate process, as many at once as there are cores.  No process is left when this returns."""
    waiting, running = list(enumerate(points)), dict[int, _Process]()
    reports: dict[int, Report] = {}
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                i, point = waiting.pop(0)
                try:
                    running[i] = _Process(point, limit)
                except OSError:  # no process can be started, which is not the plugin's fault
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
    """The last bytes of a pipe, read in the background so that the writer never waits."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.kept = b""
        self.thread = Thread(target=self._read, args=(pipe,), daemon=True, name="keel-quarantine")
        self.thread.start()

    def _read(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError), pipe:
            while data := os.read(pipe.fileno(), _KEPT):
                self.kept = (self.kept + data)[-_KEPT:]


class _Process:
    """An import in a separate process and session, so that all processes it starts end with it."""

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
        """True if it has ended, or must be ended."""
        if self.reported.kept and not self.ended:  # it only has to end
            self.ended, self.deadline = True, time.monotonic() + _GRACE
        self.late = time.monotonic() > self.deadline
        return self.late or os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """Ends it and all that it started, and returns its exit status.  Until then, its process id is not reused."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    def report(self) -> Report:
        status = self.end()
        for tail in (self.reported, self.printed):  # a process that left the session may hold the pipe for longer
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
