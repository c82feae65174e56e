"""Reads the entry points of installed distributions, and reports those that cannot be read.

A distribution is identified by the name of its metadata folder, as in Python's own tools: the name in its METADATA may
be missing, damaged or another distribution's. A malformed line is skipped; a file that cannot be read skips its
distribution. Files are read at every request, so new installations are found; only parsing is cached.
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
"""The most entry points of one group that a distribution may carry."""
LONGEST = 1000
"""The most characters of an entry point's line."""
FEW = 5
"""The most faults of a distribution that are listed one by one."""
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
    """The faults in the metadata of a distribution, as sentences."""

    package: str
    sentences: tuple[str, ...]


def normal(name: str) -> str:
    """Normalizes a name as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def carried(group: str) -> tuple[list[Carried], list[Fault]]:
    """Returns the entry points of a group, and the faults of distributions that carry or may carry it. Imports nothing.

    If several distributions have one name, the first on ``sys.path`` counts, as it does for Python.
    """
    points, faults, visited = list[Carried](), list[Fault](), set[str]()
    for dist in distributions():
        folder = _folder_name(dist)
        if normal(folder) in visited:
            continue
        visited.add(normal(folder))
        try:
            text = dist.read_text(_FILE) or ""
        except Exception as e:  # a third-party importer may raise anything
            faults.append(Fault(_printable(folder), (f"Its {_FILE} cannot be read: {_message(e)}.",)))
            continue
        if group not in text:  # the common case; some texts are large
            continue
        entries, wrong = _lines_of(text, group)
        if not entries and not wrong:
            continue
        package, unsure = _package(dist, folder)
        points += [Carried(name, value, group, package, dist) for name, value in entries]
        if unsure or wrong:
            faults.append(Fault(package, _few((*unsure, *wrong))))
    return points, faults


def unreadable() -> list[Fault]:
    """Returns distributions whose entry points Python's own reader cannot read. Any caller of that reader fails on
    them, and PyTorch calls it when it is imported.
    """
    faults = []
    for dist in distributions():
        try:
            dist.entry_points  # noqa: B018 the attribute is read lazily
        except Exception as e:
            faults.append(Fault(_printable(_folder_name(dist)), (f"Its {_FILE} cannot be read: {_message(e)}.",)))
    return faults


# -- a text -------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _lines_of(text: str, group: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Returns the names and values in the group's section, and a sentence for each malformed line."""
    lines = list(islice(_section(text, group), MOST + 1))
    if len(lines) > MOST:
        return (), (f"It carries more than {MOST} entry points of group {group}.",)
    entries, wrong = dict[str, str](), list[str]()
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
        elif name in entries:
            wrong.append(f"The entry point {shown(name)} of group {group} occurs twice; the first one counts.")
        else:
            entries[name] = value
    return tuple(entries.items()), tuple(wrong)


def _section(text: str, group: str) -> Iterator[str]:
    """Yields the lines below every ``[group]`` that are neither empty nor comments."""
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
    """Returns the name of a distribution from its folder, ``acme-1.0.dist-info``, or else from its metadata."""
    folder = os.path.basename(str(getattr(dist, "_path", "")).rstrip("/"))
    stem, kind = os.path.splitext(folder)
    if kind in (".dist-info", ".egg-info") and (name := stem.partition("-")[0]):
        return name
    try:
        return str(_metadata_name(dist) or folder)
    except Exception:  # a third-party importer may raise anything
        return folder


def _metadata_name(dist: Distribution) -> object:
    """Returns the name in a distribution's metadata, or None; ``dist.name`` warns of a missing one, or will raise."""
    return dist.metadata["Name"] if "Name" in dist.metadata else None  # noqa: SIM401  (its protocol has no get)


def _package(dist: Distribution, folder: str) -> tuple[str, list[str]]:
    """Returns the name of a distribution, spelled as in its metadata if that is the name of its folder."""
    try:
        name = _metadata_name(dist)
    except Exception as e:
        return _printable(folder), [f"Its METADATA cannot be read: {_message(e)}."]
    if not isinstance(name, str) or not name:
        return _printable(folder), ["Its METADATA is missing or has no name."]
    if normal(name) != normal(folder):
        return _printable(folder), [
            f"Its METADATA has the name {shown(name)}, and its folder the name {shown(folder)}."
        ]
    return _printable(name), []


def _printable(name: str) -> str:
    """Formats a name, which may be empty or contain anything."""
    return name if name.isprintable() and name and len(name) <= 100 else shown(name)


def _message(raised: Exception) -> str:
    if isinstance(raised, UnicodeDecodeError):
        return "it is not UTF-8 text"
    text = (raised.strerror if isinstance(raised, OSError) else None) or str(raised) or type(raised).__name__
    return text if text.isprintable() and len(text) <= 200 else shown(text)
