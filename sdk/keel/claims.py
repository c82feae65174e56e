"""Entry points, and which distribution owns a name that several carry.  Loads neither plugins nor PyTorch."""
from __future__ import annotations

import re
from importlib.metadata import EntryPoint, distributions, entry_points

from keel.errors import KeelError

OWN = "torch-keel"
"""Keel's own distribution: its plugins are trusted, and no other has their names."""


def claims_of(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name, that of the name's owner first .

    Keel's own distribution owns the names that it carries.  Any other name belongs to a distribution that is called
    like it (``acme``, ``keel-acme``), or else to the first of those that carry it, by their names.  Imports nothing.
    """
    found: dict[str, list[EntryPoint]] = {}
    for point in _entry_points(group):
        found.setdefault(point.name, []).append(point)
    return {name: sorted(points, key=_rank) for name, points in found.items()}


def _entry_points(group: str) -> list[EntryPoint]:
    try:
        return list(entry_points(group=group))
    except Exception:                                         # some distribution's are malformed: the others count
        found: dict[tuple[str, str], EntryPoint] = {}
        for dist in distributions():
            try:
                for point in dist.entry_points.select(group=group):
                    found.setdefault((package_of(point), point.name), point)
            except Exception:
                continue
        return list(found.values())


def _rank(point: EntryPoint) -> tuple[bool, bool, str, str]:
    package, name = _normal(package_of(point)), _normal(point.name)
    return not is_own(point), package not in (name, f"keel-{name}"), package, point.value


def is_own(point: EntryPoint) -> bool:
    """Whether Keel's own distribution carries it."""
    return _normal(package_of(point)) == OWN


def package_of(point: EntryPoint) -> str:
    """The name of the distribution that carries it, or else what it names."""
    try:
        return str(point.dist.name or point.value) if point.dist else point.value
    except Exception:                                         # a distribution without metadata
        return point.value


def _normal(name: str) -> str:
    """A name as indexes of packages compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def claimed(name: str, owner: EntryPoint, other: EntryPoint, kind: str = "backend") -> KeelError:
    """The error for a distribution that carries a name of another's."""
    return KeelError("broken-plugin", f"{kind} {name!r} of {package_of(other)} cannot be used: the name belongs to "
                     f"{package_of(owner)}.", {package_of(p): p.value for p in (owner, other)},
                     do=f"Uninstall one of them, or have {package_of(other)} carry another name.")
