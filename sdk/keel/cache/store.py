"""Cache entries: bytes by key, each in a file with a checksum.  A damaged entry counts as missing.

A file holds the plain bytes, so that other tools can read it, and a last line with the SHA-256 of its name and the
bytes. It is written under a temporary name, flushed to the disk and renamed, so that a reader sees all of it or
nothing, even after a crash.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from keel.cache import folder
from keel.errors import KeelError

MARK = b"\nkeel cache 1 "
SIZE = 1 << 30
"""The most bytes of all entries if ``KEEL_CACHE_SIZE`` is not set."""
STALE = 3600.0
"""Seconds after which a draft counts as abandoned: longer than a compiler runs."""
ENTRY = re.compile(rf"(?!{folder.DRAFT})[A-Za-z0-9_-]{{1,64}}-[0-9a-f]{{32}}(\.[a-z0-9]{{1,8}})?")
"""The names of entries.  No other file of a folder is evicted."""


Record = Callable[[str, bytes], None]
"""Called with the name and the bytes of an entry."""
_RECORD: ContextVar[Record | None] = ContextVar("records the entries that are used", default=None)


@contextmanager
def recorded_by(record: Record) -> Iterator[None]:
    """While the block runs, ``record`` is called for each entry that is read or written, on any thread that works for
    it.
    """
    token = _RECORD.set(record)
    try:
        yield
    finally:
        _RECORD.reset(token)


def _recorded(name: str, data: bytes) -> None:
    if (record := _RECORD.get()) is not None:
        record(name, data)


@dataclass(frozen=True)
class Cache:
    """A cache of files for one ``kind`` of things, such as the kernels of a backend; letters, digits, ``-`` and ``_``.

    Entries are the files ``<kind>-<digits><suffix>`` of ``KEEL_CACHE_DIR``, or of ``keel`` in the user's cache. If
    other users can write to the folder, or it cannot be written, a temporary folder replaces it, with one KeelWarning.
    The least recently used entries are removed when all entries together exceed ``KEEL_CACHE_SIZE`` (a number of bytes,
    ``500M`` or ``2G``; default 1 GiB). Threads and processes may use the cache at the same time.

    Raises KeelError[bad-option] if ``kind`` or ``suffix`` (such as ``.so``) is malformed.
    """

    kind: str
    suffix: str = ""

    def __post_init__(self) -> None:
        if not ENTRY.fullmatch(self.name(())):
            raise KeelError(
                "bad-option",
                f"{self.kind + self.suffix!r} cannot name the files of a cache.",
                do="A kind consists of letters, digits, - and _; a suffix of a dot, lower-case letters and digits.",
            )

    def name(self, key: Sequence[str]) -> str:
        """Returns the name of the file for ``key``."""
        return f"{self.kind}-{digest(key)[:32]}{self.suffix}"

    def get(self, key: Sequence[str]) -> bytes | None:
        """Returns the bytes of an entry, or None if it does not exist, is damaged or cannot be trusted."""
        name = self.name(key)

        def read(descriptor: int, path: Path) -> bytes | None:
            return _read(descriptor, name)

        try:
            data = folder.in_folder(read)
            data = data if data is not None else folder.in_temporary(read)
            if data is not None:
                _recorded(name, data)
            return data
        except OSError:  # no folder can be used, not even a temporary one
            return None

    def put(self, key: Sequence[str], data: bytes) -> None:
        """Stores ``data`` under ``key`` and replaces an older entry.  Does nothing if no folder can be written."""
        name = self.name(key)
        _recorded(name, data)
        put_named(name, data)

    def get_or_make(self, key: Sequence[str], make: Callable[[], bytes]) -> bytes:
        """Returns the entry of ``key``.  If it is missing, calls ``make()`` and stores the result."""
        data = self.get(key)
        if data is None:
            data = make()
            self.put(key, data)
        return data


def put_missing(name: str, data: bytes) -> None:
    """Stores an entry under the name of its file, unless the file exists.  Does nothing for a name that no entry
    has.
    """
    try:
        missing = folder.in_folder(lambda descriptor, path: None if (path / name).exists() else True)
    except OSError:
        return
    if missing and ENTRY.fullmatch(name):
        put_named(name, data)


def put_named(name: str, data: bytes) -> None:
    """Stores an entry under the name of its file."""
    limit = size_limit()
    if len(data) > limit:
        return

    def write(descriptor: int, path: Path) -> None:
        _write(descriptor, name, data)
        sweep(descriptor, limit, keep=name)

    with suppress(OSError):
        folder.in_folder(write)


def digest(key: Sequence[str]) -> str:
    """Returns the hash of a key as 64 hexadecimal digits. The way in which the key is split into strings counts,
    too.
    """
    hashed = hashlib.sha256()
    for part in key:
        encoded = part.encode("utf-8", "surrogateescape")
        hashed.update(b"%d:" % len(encoded))
        hashed.update(encoded)
    return hashed.hexdigest()


def size_limit() -> int:
    """Returns ``KEEL_CACHE_SIZE`` in bytes, 1 GiB if it is not set.  Raises KeelError[bad-option]."""
    text = os.environ.get("KEEL_CACHE_SIZE") or str(SIZE)
    if not (matched := re.fullmatch(r"(\d{1,15})([KMGT]?)", text.strip().upper())):
        raise KeelError(
            "bad-option",
            f"KEEL_CACHE_SIZE={text} is not a number of bytes.",
            do="Write it as 500000, 500M or 2G, for example.",
        )
    return int(matched[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[matched[2]]


def sealed(name: str, data: bytes) -> bytes:
    """Returns the content of an entry's file.  A changed bit, or another name of the file, is detected."""
    hashed = hashlib.sha256(name.encode() + MARK)
    hashed.update(data)
    return data + MARK + hashed.hexdigest().encode() + b"\n"


def unsealed(name: str, held: bytes) -> bytes | None:
    """Returns the bytes of an entry, or None unless ``sealed`` made the file's content for that name."""
    data = held[: max(0, len(held) - len(sealed("", b"")))]
    return data if held == sealed(name, data) else None


def _read(descriptor: int, name: str) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in its place must not block
    try:
        file = os.open(name, flags, dir_fd=descriptor)
    except OSError:
        return None
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or not folder.owned(state):
            return None
        with open(file, "rb", closefd=False) as stream:
            data = unsealed(name, stream.read())
        if data is not None:
            with suppress(OSError):
                os.utime(file)  # the time of its last use, which decides eviction
        return data
    except OSError:  # the disk cannot read it
        return None
    finally:
        os.close(file)


def _write(descriptor: int, name: str, data: bytes) -> None:
    draft = folder.draft_name()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600, dir_fd=descriptor), "wb") as stream:
            stream.write(sealed(name, data))
            stream.flush()
            os.fsync(stream.fileno())  # the folder is not flushed: an entry that a crash makes nameless is missing
        _move(descriptor, draft, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=descriptor)
        raise


def _move(descriptor: int, draft: str, name: str) -> None:
    try:
        os.replace(draft, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except IsADirectoryError:  # Keel makes no folder of that name
        aside = folder.draft_name()
        os.rename(name, aside, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        os.replace(draft, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        _remove(descriptor, aside)


def sweep(descriptor: int, limit: int, keep: str) -> None:
    """Removes abandoned drafts, and the least recently used entries until all together take at most ``limit`` bytes.

    The entry ``keep`` stays.
    """
    entries, now = [], time.time()
    with os.scandir(descriptor) as listed:
        for each in listed:
            with suppress(OSError):  # gone already
                state = each.stat(follow_symlinks=False)
                if ENTRY.fullmatch(each.name):
                    entries.append((state.st_mtime, state.st_size, each.name))
                elif each.name.startswith(folder.DRAFT) and now - state.st_mtime > STALE:
                    _remove(descriptor, each.name)
    total = sum(size for _, size, _ in entries)
    for _, size, name in sorted(entries):
        if total <= limit:
            break
        if name != keep:
            _remove(descriptor, name)
            total -= size


def _remove(descriptor: int, name: str) -> None:
    """Removes a file or a folder of the cache, if it is still there."""
    try:
        os.unlink(name, dir_fd=descriptor)
    except IsADirectoryError:
        shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)
    except OSError:
        pass
