"""The zip archive of a saved graph. It is read within limits, whatever its own tables claim, and written atomically."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO
from zlib import error as ZlibError

from keel.documents import Malformed

MOST_TEXT = 1 << 26
"""The most bytes of a compressed member: 64 MiB. A graph of 60,000 calls, the most that a JSON text may hold, takes
about 40 MiB."""
_ROW = 128
"""Bytes of a member's row in the archive's table: 46, its name, and its place in a file of more than 4 GiB."""
_END, _LOCATOR, _END64 = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"


def members(file: BinaryIO, size: int, most: int, packed: Collection[str] = ()) -> dict[str, bytes]:
    """Returns the members of a zip archive by name, at most ``most`` of them.

    Members named in ``packed`` may be compressed and have at most ``MOST_TEXT`` bytes. All others together have at most
    ``size`` bytes, the size of the file, so that a small file cannot unpack to a large one. Raises Malformed.
    """
    if _table(file, size) > most * _ROW:
        raise Malformed("", f"It has more than {most} members, or their names are too long.")
    try:
        with zipfile.ZipFile(file) as archive:
            rows = archive.infolist()
            if len(rows) > most:
                raise Malformed("", f"It has more than {most} members.")
            if len({row.filename for row in rows}) < len(rows):
                raise Malformed("", "Two members have one name.")
            if sum(row.file_size for row in rows if row.filename not in packed) > size:
                raise Malformed("", f"Its members have more bytes than the {size} that it has.")
            return {row.filename: _member(archive, row, row.filename in packed) for row in rows}
    except Malformed:
        raise
    except (
        zipfile.BadZipFile,
        ZlibError,
        struct.error,
        EOFError,
        ValueError,
        OSError,
        RuntimeError,
        KeyError,
        IndexError,
        NotImplementedError,
        OverflowError,
    ) as e:
        raise Malformed("", f"It is not a complete zip archive: {e}") from e


def _table(file: BinaryIO, size: int) -> int:
    """Returns the size of the table of members, as the end of the archive states it. The archive must have no
    comment.
    """
    file.seek(max(size - 98, 0))
    tail = file.read(98).rjust(98, b"\0")
    if tail[76:80] != _END or tail[96:] != b"\0\0":
        raise Malformed("", "It is not a complete zip archive.")
    if tail[56:60] == _LOCATOR:
        if tail[:4] != _END64:
            raise Malformed("", "The end of the archive is damaged.")
        return int(struct.unpack("<Q", tail[40:48])[0])
    return int(struct.unpack("<L", tail[88:92])[0])


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, packed: bool) -> bytes:
    if info.compress_type not in (zipfile.ZIP_STORED, *([zipfile.ZIP_DEFLATED] if packed else [])):
        raise Malformed(info.filename[:80], "It is compressed by a method that saved graphs do not use.")
    most = MOST_TEXT if packed else info.file_size
    if info.file_size > most:
        raise Malformed(info.filename[:80], f"It has {info.file_size} bytes, more than {most}.")
    with archive.open(info) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise Malformed(info.filename[:80], f"It has more than {most} bytes.")
    return content


def write(path: Path, parts: Mapping[str, bytes]) -> None:
    """Writes the archive atomically.  The same parts give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            packing = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_bytes(buffer.getvalue())
    draft.replace(path)
