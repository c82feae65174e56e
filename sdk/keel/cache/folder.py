"""The folder that a cache may use: one that only this user can write to, or else a temporary one.

Whoever can write to the folder can have code run in the processes that read from it.  So the folder is opened once,
what was opened is checked, and everything after goes through the open descriptor: exchanging a part of its path in
the meantime gains nothing.  Compilers alone need a path: of the folder they work in, so nobody else may be able to
rename a folder above it.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from keel.errors import KeelWarning

T = TypeVar("T")

DRAFT = "keel-draft-"
"""How names of what is not finished begin; ``store.sweep`` removes those that nobody finishes."""

_TEMPORARY: dict[tuple[Path, int], Path] = {}
"""The temporary folder that stands in for a root, by the root and the process: a forked child has its own."""


class Untrusted(OSError):
    """A folder that others could have written to."""


def root() -> Path:
    """The folder of all caches: ``KEEL_CACHE_DIR``, or ``keel`` in the user's cache (``XDG_CACHE_HOME``, ~/.cache)."""
    if named := os.environ.get("KEEL_CACHE_DIR"):
        return Path(named).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(home):  # others count as none, its specification says
        return Path(home) / "keel"
    try:
        return Path.home() / ".cache" / "keel"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()).absolute() / f"keel-{os.geteuid()}"


def in_folder(act: Callable[[int, Path], T]) -> T:
    """``act(descriptor, path)`` in the root.

    If the root cannot be trusted, or ``act`` raises OSError there, a KeelWarning says so, once per process, and the
    same is done in a temporary folder.  Raises OSError if that fails, too.
    """
    home = root()
    try:
        return _in(home, act)
    except OSError as raised:
        return _in(_temporary(home, raised), act)


def in_temporary(act: Callable[[int, Path], T]) -> T | None:
    """``act(descriptor, path)`` in the temporary folder that stands in for the root; None if there is none."""
    folder = _TEMPORARY.get((root(), os.getpid()))
    return _in(folder, act) if folder is not None else None


@contextmanager
def workspace(full: OSError | None = None) -> Iterator[Path]:
    """A new folder for a compiler to work in, removed at the end.

    It is made in the cache, so that those of killed processes are swept, or in a temporary folder where the cache is
    ``full``.  Raises OSError if there is no place for it.
    """

    def make(descriptor: int, path: Path) -> Path:
        name = draft_name()
        os.mkdir(name, 0o700, dir_fd=descriptor)
        return path / name

    place = in_folder(make) if full is None else _in(_temporary(root(), full), make)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def lacks_room(place: Path) -> OSError | None:
    """What the system says to a file of one MiB in the folder; None if it takes it."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as raised:
        return raised
    return None


def draft_name() -> str:
    """A name that no other thread, process or machine has."""
    return DRAFT + secrets.token_hex(16)


def owned(state: os.stat_result) -> bool:
    """Whether the file or folder belongs to this user and nobody else may write to it."""
    return state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


# -- opening -------------------------------------------------------------------------------------------


def _in(home: Path, act: Callable[[int, Path], T]) -> T:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid():
            raise Untrusted("it belongs to another user")
        if not owned(state):
            raise Untrusted("other users may write to it")
        return act(descriptor, home)
    finally:
        os.close(descriptor)


def _temporary(home: Path, why: OSError) -> Path:
    """The temporary folder of this process that stands in for ``home``; a warning says why when it is made."""
    key = (home, os.getpid())
    if key in _TEMPORARY:
        return _TEMPORARY[key]
    made = Path(tempfile.mkdtemp(prefix="keel-"))
    path = _TEMPORARY.setdefault(key, made)
    if path is not made:  # another thread was faster
        made.rmdir()
        return path
    atexit.register(_remove, path, os.getpid())
    reason = why.strerror or why
    warnings.warn(
        f"The cache of compiled kernels in {home} cannot be used: {reason}. A temporary folder stands in for "
        "it until the process ends. KEEL_CACHE_DIR names another folder, which must be yours alone.",
        KeelWarning,
        stacklevel=2,
    )
    return path


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends must not take it away
        shutil.rmtree(path, ignore_errors=True)
