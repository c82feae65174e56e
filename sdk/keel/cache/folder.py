"""The folder of a cache: one that only this user can write to, or else a temporary one.

A user who can write to the folder can have code run in the processes that read from it. So the folder is opened once,
the open folder is checked, and all later access goes through its descriptor: an attacker gains nothing by replacing a
part of its path. Only compilers need a path, that of their working folder, so no other user may be able to rename a
folder above it.
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
"""The prefix of names of unfinished files and folders; ``store.sweep`` removes abandoned ones."""

_TEMPORARY: dict[tuple[Path, int], Path] = {}
"""The temporary folder that replaces a root, by root and process: a forked child has its own."""


class Untrusted(OSError):
    """A folder that others could have written to."""


def root() -> Path:
    """The folder of all caches: ``KEEL_CACHE_DIR``, or ``keel`` in the user's cache (``XDG_CACHE_HOME``, ~/.cache)."""
    if named := os.environ.get("KEEL_CACHE_DIR"):
        return Path(named).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(home):  # the specification says that relative paths are ignored
        return Path(home) / "keel"
    try:
        return Path.home() / ".cache" / "keel"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()).absolute() / f"keel-{os.geteuid()}"


def in_folder(act: Callable[[int, Path], T]) -> T:
    """Runs ``act(descriptor, path)`` in the root.

    If the root cannot be trusted, or ``act`` raises OSError there, it runs in a temporary folder, with one KeelWarning
    per process. Raises OSError if that fails, too.
    """
    home = root()
    try:
        return _in(home, act)
    except OSError as raised:
        return _in(_temporary(home, raised), act)


def in_temporary(act: Callable[[int, Path], T]) -> T | None:
    """Runs ``act(descriptor, path)`` in the temporary folder that replaces the root. Returns None if no such folder
    exists.
    """
    folder = _TEMPORARY.get((root(), os.getpid()))
    return _in(folder, act) if folder is not None else None


@contextmanager
def workspace(full: OSError | None = None) -> Iterator[Path]:
    """A new folder for a compiler to work in, removed at the end.

    It is made in the cache, so that folders of killed processes are swept, or in a temporary folder if the cache is
    ``full``. Raises OSError if it cannot be made.
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
    """Tries to write a file of one MiB to the folder.  Returns the system's error, or None."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as raised:
        return raised
    return None


def draft_name() -> str:
    """Returns a name that no other thread, process or machine uses."""
    return DRAFT + secrets.token_hex(16)


def owned(state: os.stat_result) -> bool:
    """True if the file or folder belongs to this user and no other user may write to it."""
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
    """Returns the temporary folder of this process that replaces ``home``.  A warning says why when it is made."""
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
        f"The cache of compiled kernels in {home} cannot be used: {reason}. A temporary folder replaces "
        "it until the process ends. Set KEEL_CACHE_DIR to a folder that only you can write to.",
        KeelWarning,
        stacklevel=2,
    )
    return path


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends must not remove it
        shutil.rmtree(path, ignore_errors=True)
