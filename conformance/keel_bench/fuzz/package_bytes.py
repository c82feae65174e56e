"""Packages as members and as bytes with right checksums, so that a changed member is read and not only refused."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Mapping
from struct import pack, unpack_from
from zlib import crc32

from .mutate import Mutation, of_bytes, unzipped

ALIGNMENT, LOCAL = 64, 30
PADDING = 0xD935
"""The kind of the extra field that aligns a member."""
COMMENT = 8


def package_of(members: Mapping[str, bytes]) -> bytes:
    """A package with these members."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.comment = b"0" * COMMENT
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            rest = -(held.tell() + LOCAL + len(info.filename.encode()) + 4) % ALIGNMENT
            info.extra = pack("<2H", PADDING, rest) + bytes(rest)
            archive.writestr(info, content)
    made = held.getvalue()
    return made[:-COMMENT] + b"%08x" % _structure(made)


def _structure(made: bytes) -> int:
    """The CRC-32 of all bytes outside of members, which the comment at the end has."""
    crc = at = 0
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        for info in archive.infolist():
            name, extra = unpack_from("<2H", made, info.header_offset + 26)
            start = info.header_offset + LOCAL + name + extra
            crc, at = crc32(made[at:start], crc), start + info.file_size
    return crc32(made[at:-COMMENT], crc)


def member(name: str, mutation: Mutation) -> Mutation:
    """A mutation of a member of a package, whose checksums are made right again."""

    def mutated(data: bytes, draw: random.Random) -> bytes:
        try:
            parts = unzipped(data)
            return package_of({**parts, name: mutation(parts[name], draw)})
        except Exception:  # whatever a damaged archive makes its reader raise
            return of_bytes(data, draw)

    return mutated


def members(data: bytes, draw: random.Random) -> bytes:
    """A package in which a member is taken away, renamed, repeated, or has another's bytes."""
    try:
        parts = unzipped(data)
        one, other = draw.choice([*parts]), draw.choice([*parts])
        match draw.randrange(4):
            case 0:
                del parts[one]
            case 1:
                parts[draw.choice(("x", "../x", f"{one}.old", "weights/x"))] = parts.pop(one)
            case 2:
                parts[f"{one}.2"] = parts[one]
            case _:
                parts[one] = parts[other]
        return package_of(parts)
    except Exception:  # whatever a damaged archive makes its reader raise
        return of_bytes(data, draw)
