"""Folders that readers of folders get: made of one file, before what it does is watched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from .mutate import unzipped

LayOut = Callable[[Path], Path]


def as_member(name: str) -> LayOut:
    """A folder with the file under this name."""

    def laid_out(file: Path) -> Path:
        folder = _empty(file)
        shutil.copyfile(file, folder / name)
        return folder

    return laid_out


def unpacked(*names: str, alone_as: str = "") -> LayOut:
    """A folder with these files of an archive. With ``alone_as``, each is in a folder of its own under that name.
    The first of them is the file itself if that is not an archive.
    """

    def laid_out(file: Path) -> Path:
        folder = _empty(file)
        try:
            parts = unzipped(file.read_bytes())
        except Exception:  # whatever a damaged archive makes its reader raise
            parts = {names[0]: file.read_bytes()}
        for name in names:
            if name in parts:
                place = folder / name / alone_as if alone_as else folder / name
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(parts[name])
        return folder

    return laid_out


def private(file: Path) -> Path:
    """The file, which only its owner can read."""
    file.chmod(0o600)
    return file


def _empty(file: Path) -> Path:
    folder = file.with_name("folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
