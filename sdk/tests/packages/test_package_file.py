"""The file of a package: every byte is under a checksum, and members are aligned."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from keel.documents import Malformed
from keel.packages.package_file import ALIGNMENT, PackageFile, written

CONTENTS = {f"some/{n}": bytes([n]) * n * 13 for n in range(12)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.keel"
    with written(path) as writer:
        for name, content in CONTENTS.items():
            writer.add(name, content)
            writer.add(name, b"a second member of this name is left out")
    return path


def read(path: Path) -> dict[str, bytes]:
    file = PackageFile.opened(path)
    return {name: bytes(file.member(name)) for name in file.members}


def test_members_are_read_as_they_were_written(path: Path) -> None:
    assert read(path) == CONTENTS
    assert all(member.start % ALIGNMENT == 0 for member in PackageFile.opened(path).members.values())


def test_it_is_a_zip_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and archive.namelist() == [*CONTENTS]


def test_every_damaged_byte_is_noticed(path: Path) -> None:
    sound, drawn = path.read_bytes(), random.Random(0)
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << drawn.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(Malformed):
            read(path)


def test_a_file_of_another_length_is_not_a_package(path: Path) -> None:
    sound = path.read_bytes()
    for content in (*(sound[:end] for end in range(0, len(sound), 11)), sound + b"\0", b"\0" + sound):
        path.write_bytes(content)
        with pytest.raises(Malformed):
            read(path)


def test_sizes_beyond_four_gigabytes_have_fields_of_their_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 4)
    for limit in (62, 64, 66, 1000):
        monkeypatch.setattr(zipfile, "ZIP64_LIMIT", limit)
        with written(path) as writer:
            for name, content in CONTENTS.items():
                writer.add(name, content)
        assert read(path) == CONTENTS


def test_a_file_that_is_not_finished_is_not_there(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), written(path) as writer:
        writer.add("some/0", b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == before and [*path.parent.iterdir()] == [path]


def test_other_zip_archives_are_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("some/0", b"0" * 1000)
    with pytest.raises(Malformed, match="not a package"):
        PackageFile.opened(path)


def test_a_member_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(Malformed, match="no member 'other'"):
        PackageFile.opened(path).member("other")


def test_what_is_written_to_a_mapped_member_does_not_reach_the_file(path: Path) -> None:
    PackageFile.opened(path).member("some/5")[:] = bytes(65)
    assert read(path) == CONTENTS
