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
"""Bytes that a library may have."""

_LOADED: dict[str, ctypes.CDLL] = {}
"""Libraries of this process by the SHA-256 of their bytes.  They stay loaded, for launchers hold their functions."""
_BUILT: dict[str, ctypes.CDLL] = {}
"""The same by the digest of what they are made from."""


def compile_library(
    kind: str, command: Sequence[str], text: str, *, key: Sequence[str] = (), what: str = "the kernels"
) -> ctypes.CDLL:
    """The shared library that ``command`` makes of ``text``, which it reads from its standard input.

    ``-o`` and a file are added to the command.  The library is kept in ``Cache(kind, ".so")`` by the text, the command,
    the content of the compiler and ``key``: whatever else it depends on, such as the CPU where the command asks for
    that of this machine.  ``what`` names what is compiled, for the error.

    Raises KeelError[build-failed] if the compiler rejects the text, hangs (see ``run_compiler``) or is not there, or
    if the library cannot be loaded.
    """
    parts = [text, *command, compiler_fingerprint(command[0]), *key]
    name = digest([kind, *parts])
    if name not in _BUILT:
        _BUILT[name] = _kept(Cache(kind, ".so"), parts) or _new(Cache(kind, ".so"), parts, command, text, what)
    return _BUILT[name]


def _kept(cache: Cache, parts: Sequence[str]) -> ctypes.CDLL | None:
    """The library that is kept, if it can be loaded here."""
    data = cache.get(parts)
    try:
        return load_library(data, cache.kind) if data is not None else None
    except KeelError:
        return None


def _new(cache: Cache, parts: Sequence[str], command: Sequence[str], text: str, what: str) -> ctypes.CDLL:
    """The library as the compiler makes it, which is kept if it can be loaded."""
    data = _compiled(cache.kind, command, text, what)
    library = load_library(data, cache.kind)
    cache.put(parts, data)
    return library


def load_library(data: bytes, name: str = "kernels") -> ctypes.CDLL:
    """The shared library whose file holds ``data``; the same bytes are loaded once.

    Nothing on disk is trusted between verifying and loading: the bytes go to memory that is sealed, or where the
    system has no such memory, to a private file that is gone afterwards.  Raises KeelError[build-failed] if the
    system's loader refuses it, or if it is cut off, of which the loader would die.
    """
    if _is_cut_off(data):
        raise KeelError(
            "build-failed",
            f"The library of {name} is cut off after {len(data)} bytes.",
            do="The disk that it was written to may have been full.",
        )
    content = hashlib.sha256(data).hexdigest()
    if content not in _LOADED:
        try:
            library = _from_memory(data, name, content)
        except (AttributeError, OSError):  # no Linux, or a policy against code in such memory
            library = _from_file(data, name)
        _LOADED.setdefault(content, library)
    return _LOADED[content]


_WIDE = b"\x7fELF\x02"
"""How 64-bit ELF files begin; other formats are left to the loader."""


def _is_cut_off(data: bytes) -> bool:
    """Whether an ELF file ends before what its tables say: its sections, and the segments that are mapped.

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
        # The loader takes a path that it has seen for the library that it has loaded from there, and numbers of
        # descriptors come again.  So the path spells the content, in slashes that change nothing: "//" or "/./".
        spelled = "".join("/./" if bit == "1" else "//" for bit in f"{int(content[:32], 16):0128b}")
        return ctypes.CDLL(f"/proc/self/fd{spelled}{file}")
    finally:
        os.close(file)


def _from_file(data: bytes, name: str) -> ctypes.CDLL:
    """Loads a private copy, in the cache's folder or in a temporary one: either may be on a disk without execution."""
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
            do="Its symbols may be missing, or no disk may hold code.",
        ) from raised


def _from_copy(data: bytes, place: Path) -> ctypes.CDLL:
    file = place / "library.so"  # the folder's name is new, so the path is
    file.write_bytes(data)
    return ctypes.CDLL(str(file))


def _compiled(kind: str, command: Sequence[str], text: str, what: str) -> bytes:
    """The bytes of the library.  A compiler that fails where the disk is full has another try elsewhere."""
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
        do="KEEL_DUMP=<folder> keeps the text that was compiled.",
    )


def _no_place(what: str, why: OSError) -> KeelError:
    return KeelError(
        "build-failed",
        f"There is no place to compile {what} in.",
        {"system": f"{why}."},
        do="KEEL_CACHE_DIR or TMPDIR names a folder that can be written.",
    )


def _attempt(place: Path, command: Sequence[str], text: str) -> bytes | str:
    """The bytes that the compiler made, or what it said against the text."""
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
    if not stat.S_ISREG(state.st_mode):  # a pipe would hang who reads it
        return "It made something else than a file."
    return output.read_bytes() if state.st_size <= LARGEST else f"It made a file of {state.st_size} bytes."
