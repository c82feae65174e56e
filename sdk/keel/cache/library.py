"""Shared libraries: compiled from text once, and loaded from the very bytes that were verified."""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from keel.cache.folder import lacks_room, workspace
from keel.cache.store import Cache, digest
from keel.cache.toolchain import compiler_fingerprint, run_compiler
from keel.errors import KeelError

LARGEST = 1 << 31
"""The most bytes of a library."""

_LOADED: dict[str, ctypes.CDLL] = {}
"""Libraries of this process by the SHA-256 of their bytes.  They stay loaded, for launchers hold their functions."""
_BUILT: dict[str, ctypes.CDLL] = {}
"""The same libraries by the digest of their inputs."""


def compile_library(
    kind: str, command: Sequence[str], text: str, *, key: Sequence[str] = (), what: str = "the kernels"
) -> ctypes.CDLL:
    """Compiles ``text`` to a shared library.  ``command`` reads the text from its standard input.

    ``-o`` and a file are added to the command. The library is kept in ``Cache(kind, ".so")`` under the text, the
    command, the content of the compiler and ``key``. ``key`` holds everything else that the library depends on, such as
    the CPU if the command compiles for that of this machine. ``what`` names the source in errors.

    Raises KeelError[build-failed] if the compiler rejects the text, hangs (see ``run_compiler``) or does not exist, or
    if the library cannot be loaded.
    """
    parts = [text, *command, compiler_fingerprint(command[0]), *key]
    name = digest([kind, *parts])
    if name not in _BUILT:
        _BUILT[name] = _cached(Cache(kind, ".so"), parts) or _new(Cache(kind, ".so"), parts, command, text, what)
    return _BUILT[name]


def library_bytes(
    kind: str, command: Sequence[str], text: str, *, key: Sequence[str] = (), what: str = "the kernels"
) -> bytes:
    """The bytes of the file that ``compile_library`` would load. It is not loaded, so it may be for another machine.

    The arguments are those of ``compile_library``, and so is the entry of the cache. Raises KeelError[build-failed] if
    the compiler rejects the text, hangs, does not exist or makes a truncated file.
    """

    def make() -> bytes:
        data = _compiled(kind, command, text, what)
        if _is_cut_off(data):
            raise _truncated(data, kind)
        return data

    return Cache(kind, ".so").get_or_make([text, *command, compiler_fingerprint(command[0]), *key], make)


def _cached(cache: Cache, parts: Sequence[str]) -> ctypes.CDLL | None:
    """Returns the cached library, if it can be loaded here."""
    data = cache.get(parts)
    try:
        return load_library(data, cache.kind) if data is not None else None
    except KeelError:
        return None


def _new(cache: Cache, parts: Sequence[str], command: Sequence[str], text: str, what: str) -> ctypes.CDLL:
    """Compiles the library, and keeps it if it can be loaded."""
    data = _compiled(cache.kind, command, text, what)
    library = load_library(data, cache.kind)
    cache.put(parts, data)
    return library


def load_library(data: bytes, name: str = "kernels") -> ctypes.CDLL:
    """Loads a shared library from the bytes of its file.  The same bytes are loaded once.

    Nothing on disk is trusted between verifying and loading: the bytes go to sealed memory or, if the system has none,
    to a private file that is removed afterwards. Raises KeelError[build-failed] if the system's loader refuses the
    library, or if it is truncated, which would crash the loader.
    """
    if _is_cut_off(data):
        raise _truncated(data, name)
    content = hashlib.sha256(data).hexdigest()
    if content not in _LOADED:
        try:
            library = _from_memory(data, name, content)
        except (AttributeError, OSError):  # not Linux, or a policy forbids code in such memory
            library = _from_file(data, name)
        _LOADED.setdefault(content, library)
    return _LOADED[content]


def _truncated(data: bytes, name: str) -> KeelError:
    return KeelError(
        "build-failed",
        f"The library of {name} is truncated after {len(data)} bytes.",
        do="The disk that it was written to may have been full.",
    )


_WIDE = b"\x7fELF\x02"
"""How 64-bit ELF files begin; other formats are left to the loader."""


def _is_cut_off(data: bytes) -> bool:
    """True if an ELF file ends before the sections and mapped segments that its tables list.

    Offsets are those of the ELF-64 object file format, version 1.5 (the headers of the file and of its segments).
    """
    if not data.startswith(_WIDE):
        return False
    order = ">" if data[5:6] == b"\x02" else "<"
    try:
        segments, sections = struct.unpack_from(f"{order}QQ", data, 32)
        segment, segment_count, section, section_count = struct.unpack_from(f"{order}HHHH", data, 54)
        ends = [sections + section * section_count]
        for i in range(segment_count):
            (offset,) = struct.unpack_from(f"{order}Q", data, segments + i * segment + 8)
            (size,) = struct.unpack_from(f"{order}Q", data, segments + i * segment + 32)
            ends.append(offset + size)
    except struct.error:
        return True
    return any(end > len(data) for end in ends)


def _from_memory(data: bytes, name: str, content: str) -> ctypes.CDLL:
    import fcntl

    file = os.memfd_create(f"keel-{name}-{content[:16]}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        # The loader identifies a library by its path, and descriptor numbers are reused. So the path encodes the
        # content in redundant separators: "//" or "/./".
        spelled = "".join("/./" if bit == "1" else "//" for bit in f"{int(content[:32], 16):0128b}")
        return ctypes.CDLL(f"/proc/self/fd{spelled}{file}")
    finally:
        os.close(file)


def _from_file(data: bytes, name: str) -> ctypes.CDLL:
    """Loads a private copy from the cache's folder or a temporary one: either may be on a disk mounted without
    execution.
    """
    try:
        try:
            with workspace() as place:
                return _from_copy(data, place)
        except OSError:
            with tempfile.TemporaryDirectory(prefix="keel-") as place:
                return _from_copy(data, Path(place))
    except OSError as raised:
        raise KeelError(
            "build-failed",
            f"The system cannot load a library of {name}.",
            {"loader": f"{raised}."},
            do="It may lack symbols, or all folders may be mounted without execution.",
        ) from raised


def _from_copy(data: bytes, place: Path) -> ctypes.CDLL:
    file = place / "library.so"  # the folder's name is new, and so the path is new
    file.write_bytes(data)
    return ctypes.CDLL(str(file))


def _compiled(kind: str, command: Sequence[str], text: str, what: str) -> bytes:
    """Returns the bytes of the library. If the compiler fails because the disk is full, it runs again in another
    folder.
    """
    try:
        with workspace() as place:
            made = _attempt(place, command, text)
            full = lacks_room(place) if isinstance(made, str) else None
        if full is not None:
            with workspace(full) as place:
                made = _attempt(place, command, text)
                full = lacks_room(place) if isinstance(made, str) else None
    except OSError as raised:
        raise _no_place(what, raised) from raised
    if isinstance(made, bytes):
        return made
    if full is not None:
        raise _no_place(what, full)
    raise KeelError(
        "build-failed",
        f"{command[0]} rejected the text of {what}.",
        {command[0]: "\n    ".join(made.strip().splitlines()[:20])},
        do="Set KEEL_DUMP=<folder> to keep the compiled text.",
    )


def _no_place(what: str, why: OSError) -> KeelError:
    return KeelError(
        "build-failed",
        f"There is no folder in which to compile {what}.",
        {"system": f"{why}."},
        do="Set KEEL_CACHE_DIR or TMPDIR to a writable folder.",
    )


def _attempt(place: Path, command: Sequence[str], text: str) -> bytes | str:
    """Returns the bytes that the compiler made, or its error messages."""
    output = place / "library.so"
    ran = run_compiler([*command, "-o", str(output)], text, environment={**os.environ, "TMPDIR": str(place)})
    if ran.returncode != 0:
        return ran.stderr or ran.stdout or f"exit code {ran.returncode}"
    return _read(output)


def _read(output: Path) -> bytes | str:
    try:
        state = output.stat()
    except FileNotFoundError:
        return "It made no file."
    if not stat.S_ISREG(state.st_mode):  # reading a pipe would block
        return "It made something other than a file."
    return output.read_bytes() if state.st_size <= LARGEST else f"It made a file of {state.st_size} bytes."
