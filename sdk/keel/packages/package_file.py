"""The file of a package: a zip archive whose every byte is under a checksum, and whose members can be mapped to memory.

Members are stored, not compressed, and begin at a multiple of ``ALIGNMENT``. The CRC-32 of a member is in the table of
the archive, as in every zip file. The comment of the archive is the CRC-32 of all other bytes: the headers, the padding
and the table. So each damaged byte is noticed, and any zip tool can list the members.
"""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from keel.documents import Malformed

ALIGNMENT = 64
"""Each member begins at a multiple of this many bytes: PyTorch's own memory is aligned so, too."""
MOST = 1 << 16
"""The most members of a package."""
LONGEST = 200
"""The most characters of a member's name."""
_LOCAL, _ROW, _END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
_END64, _LOCATOR = struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
_PADDING = 0xD935
"""The kind of an extra field that aligns a member; zipalign of Android made it known."""
_LARGE = 1
"""The kind of an extra field with the sizes and the place of a member in a file of more than 4 GiB."""
_COMMENT = 8
_FULL = 0xFFFFFFFF


# -- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def written(path: Path) -> Iterator[PackageWriter]:
    """A new file at ``path``, which is there when the block ends, complete, and is not there if the block raises."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        with zipfile.ZipFile(draft, "w", allowZip64=True) as archive:
            archive.comment = b"0" * _COMMENT
            yield PackageWriter(archive)
        with draft.open("r+b") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            checksum = _structure(content, _table(content))
            file.seek(-_COMMENT, os.SEEK_END)
            file.write(b"%08x" % checksum)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class PackageWriter:
    """Adds members to a package that is written."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.names = set[str]()

    def add(self, name: str, content: bytes | memoryview) -> None:
        """Adds a member, unless there is one of this name."""
        if name in self.names:
            return
        self.names.add(name)
        info = zipfile.ZipInfo(name)  # of 1980
        info.file_size = len(content)
        large = len(content) * 1.05 > zipfile.ZIP64_LIMIT  # zipfile leaves room for what compression may add
        info.extra = _padding(self.archive.fp.tell(), len(name), large)  # type: ignore[union-attr]
        with self.archive.open(info, "w", force_zip64=large) as member:
            member.write(content)


def _padding(start: int, name: int, large: bool) -> bytes:
    """The extra field that aligns a member whose header begins at ``start``."""
    begin = start + _LOCAL.size + name + (20 if large else 0) + 4
    return struct.pack("<2H", _PADDING, -begin % ALIGNMENT) + bytes(-begin % ALIGNMENT)


# -- reading ----------------------------------------------------------------------------------------------------------


class _Member(NamedTuple):
    header: int
    start: int
    end: int
    crc: int


@dataclass(frozen=True, eq=False)
class PackageFile:
    """The members of a package. A file is mapped to memory, privately: what is written there does not reach it."""

    path: Path
    content: memoryview
    members: dict[str, _Member]

    @staticmethod
    def of(content: memoryview, path: Path) -> PackageFile:
        """A package in memory. The bytes outside of members are checked. Raises Malformed."""
        members = _table(content)
        if bytes(content[-_COMMENT:]) != b"%08x" % _structure(content, members):
            raise Malformed("", "Its headers are damaged: they do not have the checksum at its end.")
        return PackageFile(path, content, members)

    @staticmethod
    def opened(path: Path) -> PackageFile:
        """Opens a file. The bytes outside of members are checked. Raises Malformed."""
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise Malformed("", "It is empty.")
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as e:
            if isinstance(e, Malformed):
                raise
            raise Malformed("", getattr(e, "strerror", None) or str(e)) from e
        return PackageFile.of(memoryview(content), path)

    def member(self, name: str, *, checked: bool = True) -> memoryview:
        """The bytes of a member. Raises Malformed if no member has this name, and if a ``checked`` one is damaged."""
        if (place := self.members.get(name)) is None:
            raise Malformed("", f"It has no member {name[:LONGEST]!r}.")
        view = self.content[place.start : place.end]
        if checked and crc32(view) != place.crc:
            raise Malformed(name, "It is damaged: it does not have its checksum.")
        return view


def _structure(content: memoryview, members: dict[str, _Member]) -> int:
    """The CRC-32 of all bytes that are neither in a member nor the comment."""
    crc = at = 0
    for member in members.values():
        crc, at = crc32(content[at : member.start], crc), member.end
    return crc32(content[at:-_COMMENT], crc)


def _table(content: memoryview) -> dict[str, _Member]:
    """The members in the order of their places, which follow each other without a gap. Raises Malformed."""
    try:
        members: dict[str, _Member] = {}
        count, at, end = _place_of_table(content)
        for _ in range(count):
            name, member, at = _row(content, at, end)
            if members.setdefault(name, member) is not member:
                raise Malformed(name, "Two members have this name.")
    except struct.error as e:
        raise Malformed("", "It ends early.") from e
    expected = 0
    for name, member in members.items():
        if member.header != expected:
            raise Malformed(name, "It does not follow the member before it.")
        expected = member.end
    if at != end:
        raise Malformed("", "Its table is longer than its members.")
    return members


def _place_of_table(content: memoryview) -> tuple[int, int, int]:
    """The number of members, and where their table begins and ends."""
    tail = len(content) - _END.size - _COMMENT
    if tail < 0:
        raise Malformed("", "It is not a package.")
    mark, disk, first, here, count, size, start, comment = _END.unpack_from(content, tail)
    if mark != b"PK\x05\x06" or comment != _COMMENT or disk or first or here != count:
        raise Malformed("", "It is not a package, or it is not complete.")
    end, locator = tail, max(tail - _LOCATOR.size, 0)
    if bytes(content[locator : locator + 4]) == b"PK\x06\x07":  # of more than 2 GiB, or of many members
        _, _, end, _ = _LOCATOR.unpack_from(content, locator)
        if end + _END64.size != locator:
            raise Malformed("", "Its end is damaged.")
        mark, *_, count, size, start = _END64.unpack_from(content, end)
        if mark != b"PK\x06\x06":
            raise Malformed("", "Its end is damaged.")
    if start + size != end:
        raise Malformed("", "Its table is not where its end says.")
    if count > MOST:
        raise Malformed("", f"It has more than {MOST} members.")
    return count, start, end


def _row(content: memoryview, at: int, end: int) -> tuple[str, _Member, int]:
    """The name and the place of a member, from its row at ``at`` in the table, and where the next row begins."""
    mark, _, _, flags, method, _, _, crc, packed, size, *lengths, header = _ROW.unpack_from(content, at)
    name_length, extra_length, comment_length = lengths[:3]
    after = at + _ROW.size + name_length + extra_length
    if mark != b"PK\x01\x02" or comment_length or after > end or not 0 < name_length <= LONGEST:
        raise Malformed("", "Its table is damaged.")
    name = _text(content[at + _ROW.size : at + _ROW.size + name_length])
    extra = content[at + _ROW.size + name_length : after]
    packed, size, header = _large(extra, [packed, size, header])
    if method != zipfile.ZIP_STORED or flags or packed != size:
        raise Malformed(name, "It is compressed or encrypted. The members of packages are neither.")
    begin = header + _LOCAL.size
    local = _LOCAL.unpack_from(content, header)
    start = begin + local[-2] + local[-1]
    if local[0] != b"PK\x03\x04" or _text(content[begin : begin + local[-2]]) != name or start + size > at:
        raise Malformed(name, "Its header is damaged.")
    if start % ALIGNMENT:
        raise Malformed(name, f"It does not begin at a multiple of {ALIGNMENT} bytes.")
    return name, _Member(header, start, start + size, crc), after


def _text(name: memoryview) -> str:
    try:
        return bytes(name).decode("ascii")
    except UnicodeDecodeError as e:
        raise Malformed("", "The name of a member is not in ASCII.") from e


def _large(extra: memoryview, values: list[int]) -> Iterable[int]:
    """Sizes and a place, with those that a row cannot hold read from its extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == _LARGE:
            numbers = iter(struct.unpack_from(f"<{size // 8}Q", extra, at + 4))
            return [next(numbers, 0) if value == _FULL else value for value in values]
        at += 4 + size
    return values
