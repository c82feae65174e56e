"""Runs compilers as processes with a time limit, and identifies them by their content."""

from __future__ import annotations

import hashlib
import math
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from keel.cache.store import Cache, size_limit
from keel.errors import KeelError

SECONDS = 600.0
"""The time limit of a compiler, in seconds, if ``KEEL_COMPILER_TIMEOUT`` is not set."""

MAX_OUTPUT = 1 << 20
"""The most bytes kept of each stream that a compiler prints, from its beginning."""
_GRACE = 1.0
"""Seconds for which streams are still read after the compiler and its process group have ended, if another process
holds them open, such as a server that the compiler started."""
_PAUSE = 0.1

RUN_BY_DRIVERS = ("cc1", "cc1plus", "as", "ld")
"""The programs that GCC's and Clang's drivers run.  They contain the compiler itself."""

Identity = tuple[str, int, int, int, int, int]
_DIGITS = re.compile(rb"[0-9a-f]{64}")


@dataclass
class _Running:
    """The compilers that run in a context and its copies, and whether they were stopped."""

    processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    stopped: bool = False

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.processes):
            _kill(process)


_RUNNING: ContextVar[_Running | None] = ContextVar("compilers that run", default=None)


@contextmanager
def stopped_with_this() -> Iterator[None]:
    """Kills the compilers that run in copies of the block's context if an exception leaves the block.

    An interrupt reaches only the main thread. It does not reach compilers, which have process groups of their own. So a
    thread that waits for other threads that wait for compilers would wait forever.
    """
    running = _Running()
    token = _RUNNING.set(running)
    try:
        yield
    except BaseException:
        running.stop()
        raise
    finally:
        _RUNNING.reset(token)


def run_compiler(
    command: Sequence[str],
    text: str = "",
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` with ``text`` on its standard input.  Returns its exit code and the first MiB of each stream.

    After ``seconds`` (``KEEL_COMPILER_TIMEOUT``, default 600), or if this call is interrupted, the command and all
    processes in its group are killed. Raises KeelError[build-failed] on a timeout, or if the command cannot be started.
    """
    limit = seconds if seconds is not None else _limit()
    try:
        process = subprocess.Popen(
            [*command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment) if environment is not None else None,
            process_group=0,
        )
    except OSError as raised:
        raise KeelError("build-failed", f"{command[0]} could not be started.", {command[0]: f"{raised}."}) from raised
    running = _RUNNING.get() or _Running()
    running.processes.add(process)
    with process:
        try:
            if running.stopped:
                raise KeyboardInterrupt
            out, err = _exchanged(process, text.encode("utf-8", "replace"), limit)
        except subprocess.TimeoutExpired as raised:
            _kill(process)
            raise KeelError(
                "build-failed",
                f"{command[0]} did not end within {limit:g} seconds and was stopped.",
                do="Set KEEL_COMPILER_TIMEOUT=<seconds> to give it more time.",
            ) from raised
        except BaseException:
            _kill(process)
            raise
        finally:
            running.processes.discard(process)
    return subprocess.CompletedProcess([*command], process.returncode, out, err)


def _exchanged(process: subprocess.Popen[bytes], text: bytes, limit: float) -> tuple[str, str]:
    """Gives ``text`` to the process and returns its output, once it has ended.  Raises subprocess.TimeoutExpired."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    out, err, rest = bytearray(), bytearray(), memoryview(text)
    buffers = {process.stdout.fileno(): out, process.stderr.fileno(): err}
    stdin = process.stdin.fileno()
    os.set_blocking(stdin, False)
    deadline = time.monotonic() + limit
    last = math.inf
    with selectors.DefaultSelector() as waiting:
        for pipe in buffers:
            waiting.register(pipe, selectors.EVENT_READ)
        waiting.register(stdin, selectors.EVENT_WRITE)
        while waiting.get_map() and (now := time.monotonic()) < last:
            if now >= deadline:
                raise subprocess.TimeoutExpired(process.args, limit)
            if not _runs(process):
                last = min(last, now + _GRACE)
            for key, _ in waiting.select(_PAUSE):
                if key.fd == stdin:
                    rest = rest[_written(stdin, rest) :]
                    if not rest:
                        waiting.unregister(stdin)
                        process.stdin.close()
                elif data := os.read(key.fd, 1 << 16):
                    buffers[key.fd] += data[: MAX_OUTPUT - len(buffers[key.fd])]
                else:
                    waiting.unregister(key.fd)
    if process.poll() is None:  # it may still run with its streams closed
        process.wait(max(0.0, deadline - time.monotonic()))
    return _text(out), _text(err)


def _runs(process: subprocess.Popen[bytes]) -> bool:
    """True if the process or another one of its group exists."""
    if process.poll() is None:
        return True
    try:
        os.killpg(process.pid, 0)
    except OSError:
        return False
    return True


def _written(pipe: int, data: memoryview) -> int:
    """Returns how many bytes the pipe took: all if its reader is gone."""
    try:
        return os.write(pipe, data[: 1 << 16]) if data else 0
    except BrokenPipeError:
        return len(data)


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _limit() -> float:
    text = os.environ.get("KEEL_COMPILER_TIMEOUT") or str(SECONDS)
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise KeelError("bad-option", f"KEEL_COMPILER_TIMEOUT={text} is not a positive number of seconds.")


def check_limits() -> None:
    """Raises KeelError[bad-option] if ``KEEL_CACHE_SIZE`` or ``KEEL_COMPILER_TIMEOUT`` is malformed. Without this
    check, the error would look like a failure of some backend's compiler.
    """
    size_limit()
    _limit()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def compiler_fingerprint(program: str) -> str:
    """Returns a hash of a compiler's content as 64 hexadecimal digits. Another build of the same version has another
    hash.

    For a driver that supports ``-print-prog-name``, as GCC's and Clang's do, the programs that it runs count, too.
    Raises KeelError[build-failed] if the program is not on PATH, or hangs.
    """
    executable = shutil.which(program)
    if executable is None:
        raise KeelError("build-failed", f"{program} is not on PATH.")
    searched = tuple(os.environ.get(name, "") for name in ("PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"))
    return files_fingerprint((executable, *_run_by(executable, _identity(executable), searched)))


def files_fingerprint(paths: Iterable[str | Path]) -> str:
    """Returns a hash of the contents of files in this order, as 64 hexadecimal digits, for the key of what depends on
    them, such as the modules of a compiler in Python.

    They are read once. The hash is kept on disk, and found again as long as none of the files was written or replaced.
    Raises OSError if there is no such file.
    """
    return _content(tuple(map(_identity, paths)))


@lru_cache(maxsize=64)
def package_fingerprint(package: str) -> str:
    """Returns a hash of the contents of all files of an installed package, for the ``fingerprint`` of a plugin. It is
    computed once in a process, which runs the files as they were when it imported them.

    Raises KeelError[bad-option] if there is no such package.
    """
    spec = find_spec(package)
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(p for f in folders for p in f.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    if not files:
        raise KeelError("bad-option", f"There is no package {package!r} whose files can be read.")
    return files_fingerprint(files)


def _identity(path: str | Path) -> Identity:
    """Returns values that change whenever the file is written or replaced: only the system sets the time of its
    change.
    """
    real = os.path.realpath(path)
    state = os.stat(real)
    return real, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


@lru_cache(maxsize=64)
def _run_by(driver: str, identity: Identity, searched: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the programs that the driver runs; ``searched`` are the environment variables with its search paths."""
    programs = []
    for name in RUN_BY_DRIVERS:
        ran = run_compiler([driver, f"-print-prog-name={name}"], seconds=min(30.0, _limit()))
        if ran.returncode != 0:
            break  # not a driver of that family
        output = ran.stdout.strip()
        if output and (path := shutil.which(output)) is not None:
            programs.append(path)
    return tuple(programs)


@lru_cache(maxsize=64)
def _content(files: tuple[Identity, ...]) -> str:
    """Returns the hash of the files' contents, cached on disk, too: compilers are large."""
    cache, key = Cache("compilers"), [str(part) for identity in files for part in identity]
    digest = cache.get(key)
    if digest is None or not _DIGITS.fullmatch(digest):
        digest = hashlib.sha256(b"".join(_sha256(identity[0]) for identity in files)).hexdigest().encode()
        cache.put(key, digest)
    return digest.decode()


def _sha256(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
