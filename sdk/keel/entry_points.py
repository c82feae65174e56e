"""Entry points as installed distributions carry them, and what is wrong with those that cannot be read.

A distribution is known by the name of its metadata folder, as Python's own tools know it: what its METADATA says may be
missing, damaged or another's name.  A line that is malformed costs itself, a file that cannot be read its distribution.
Files are read whenever they are asked for, so what was installed meanwhile is found; taking a text apart is remembered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, distributions
from itertools import islice

from keel.documents import shown

MOST = 1000
"""Entry points of one group that a distribution may carry."""
LONGEST = 1000
"""Characters that a line of one may have."""
FEW = 5
"""Faults of a distribution that are told one by one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_FILE = "entry_points.txt"


class Carried(EntryPoint):
    """An entry point with the name of the distribution that carries it."""

    package: str

    def __init__(self, name: str, value: str, group: str, package: str, dist: Distribution | None = None) -> None:
        super().__init__(name, value, group)
        vars(self).update(dist=dist, package=package)  # it is immutable


@dataclass(frozen=True)
class Fault:
    """What is wrong with the metadata of a distribution, in sentences."""

    package: str
    sentences: tuple[str, ...]


def normal(name: str) -> str:
    """A name as indexes of packages compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def carried(group: str) -> tuple[list[Carried], list[Fault]]:
    """The entry points of a group, and what is wrong with distributions that carry it or may do so.  Imports nothing.

    Of several distributions of one name, the first on ``sys.path`` counts, as it does for Python.
    """
    points, faults, seen = list[Carried](), list[Fault](), set[str]()
    for dist in distributions():
        folder = _folder_name(dist)
        if normal(folder) in seen:
            continue
        seen.add(normal(folder))
        try:
            text = dist.read_text(_FILE) or ""
        except Exception as e:  # it may come from an importer that somebody else wrote
            faults.append(Fault(_printable(folder), (f"Its {_FILE} cannot be read: {_said(e)}.",)))
            continue
        if group not in text:  # most texts, some of which are large
            continue
        found, wrong = _lines_of(text, group)
        if not found and not wrong:
            continue
        package, unsure = _package(dist, folder)
        points += [Carried(name, value, group, package, dist) for name, value in found]
        if unsure or wrong:
            faults.append(Fault(package, _few((*unsure, *wrong))))
    return points, faults


def unreadable() -> list[Fault]:
    """Distributions whose entry points Python's own reader does not read: who asks it for any group hears of them, as
    PyTorch does when it is imported.
    """
    faults = []
    for dist in distributions():
        try:
            dist.entry_points  # noqa: B018 it is read when it is asked for
        except Exception as e:
            faults.append(Fault(_printable(_folder_name(dist)), (f"Its {_FILE} cannot be read: {_said(e)}.",)))
    return faults


# -- a text -------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _lines_of(text: str, group: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The names and values in the group's section, and a sentence on each line that is none."""
    lines = list(islice(_section(text, group), MOST + 1))
    if len(lines) > MOST:
        return (), (f"It carries more than {MOST} entry points of group {group}.",)
    found, wrong = dict[str, str](), list[str]()
    for line in lines:
        name, equals, value = (part.strip() for part in line.partition("="))
        if len(line) > LONGEST:
            wrong.append(f"An entry point of group {group} has more than {LONGEST} characters: {shown(line)}.")
        elif not equals or not value:
            wrong.append(f"The entry point {shown(line)} of group {group} is not of the form name = module:attribute.")
        elif not _NAME.fullmatch(name):
            wrong.append(
                f"The entry point {shown(name)} of group {group} has a name that is not of letters, digits, "
                "_, - and dots."
            )
        elif name in found:
            wrong.append(f"The entry point {shown(name)} of group {group} stands twice, of which the first counts.")
        else:
            found[name] = value
    return tuple(found.items()), tuple(wrong)


def _section(text: str, group: str) -> Iterator[str]:
    """The lines below ``[group]`` that say something, wherever that stands."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            inside = line[1:-1] == group
        elif inside and line and not line.startswith("#"):
            yield line


def _few(sentences: tuple[str, ...]) -> tuple[str, ...]:
    more = len(sentences) - FEW
    return (*sentences[:FEW], f"{more} more are malformed.") if more > 0 else sentences


# -- whose it is --------------------------------------------------------------------------------------


def _folder_name(dist: Distribution) -> str:
    """The name of the distribution by its folder, ``acme-1.0.dist-info``, or else by what it says."""
    folder = os.path.basename(str(getattr(dist, "_path", "")).rstrip("/"))
    stem, kind = os.path.splitext(folder)
    if kind in (".dist-info", ".egg-info") and (name := stem.partition("-")[0]):
        return name
    try:
        return str(dist.name or folder)
    except Exception:  # it belongs to an importer that somebody else wrote
        return folder


def _package(dist: Distribution, folder: str) -> tuple[str, list[str]]:
    """The name that a distribution is called by, as it writes it itself if that is the one of its folder."""
    try:
        said = dist.name
    except Exception as e:
        return _printable(folder), [f"Its METADATA cannot be read: {_said(e)}."]
    if not isinstance(said, str) or not said:
        return _printable(folder), ["Its METADATA is missing, or says no name."]
    if normal(said) != normal(folder):
        return _printable(folder), [f"Its METADATA says the name {shown(said)}, and its folder {shown(folder)}."]
    return _printable(said), []


def _printable(name: str) -> str:
    """A name that may be empty or hold anything."""
    return name if name.isprintable() and name and len(name) <= 100 else shown(name)


def _said(raised: Exception) -> str:
    if isinstance(raised, UnicodeDecodeError):
        return "it is no text in UTF-8"
    text = (raised.strerror if isinstance(raised, OSError) else None) or str(raised) or type(raised).__name__
    return text if text.isprintable() and len(text) <= 200 else shown(text)
