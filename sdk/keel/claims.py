"""Who owns a name that several distributions carry, and what is wrong with them.  Loads neither plugins nor PyTorch."""

from __future__ import annotations

from keel.entry_points import Carried, carried, normal
from keel.errors import KeelError

OWN = "torch-keel"
"""Keel's own distribution: its plugins are trusted, and no other has their names."""


def claims_of(group: str) -> dict[str, list[Carried]]:
    """The entry points of a group by name, that of the name's owner first.

    Keel's own distribution owns the names that it carries.  Any other name belongs to a distribution that is called
    like it (``acme``, ``keel-acme``), or else to the first of those that carry it, by their names.  Imports nothing.
    """
    found: dict[str, list[Carried]] = {}
    for point in carried(group)[0]:
        found.setdefault(point.name, []).append(point)
    return {name: sorted(points, key=_rank) for name, points in found.items()}


def damaged(group: str) -> dict[str, KeelError]:
    """What is wrong with the metadata of distributions that carry a group, or may do so, by distribution."""
    return {
        fault.package: KeelError(
            "broken-plugin",
            f"the metadata of {fault.package} is damaged.",
            {fault.package: " ".join(fault.sentences)},
            do=f"Install {fault.package} again, or uninstall it.",
        )
        for fault in carried(group)[1]
    }


def _rank(point: Carried) -> tuple[bool, bool, str, str]:
    package, name = normal(point.package), normal(point.name)
    return not is_own(point), package not in (name, f"keel-{name}"), package, point.value


def is_own(point: Carried) -> bool:
    """Whether Keel's own distribution carries it."""
    return normal(point.package) == OWN


def claimed(name: str, owner: Carried, other: Carried, kind: str = "backend") -> KeelError:
    """The error for a distribution that carries a name of another's."""
    return KeelError(
        "broken-plugin",
        f"{kind} {name!r} of {other.package} cannot be used: the name belongs to {owner.package}.",
        {p.package: p.value for p in (owner, other)},
        do=f"Uninstall one of them, or have {other.package} carry another name.",
    )
