"""Decides which distribution owns a name that several carry, and lists faults of distributions. Loads neither plugins
nor PyTorch.
"""

from __future__ import annotations

from keel.entry_points import Carried, carried, normal
from keel.errors import KeelError

OWN = "torch-keel"
"""Keel's own distribution.  Its plugins are trusted, and no other distribution may use their names."""


def claims_of(group: str) -> dict[str, list[Carried]]:
    """Returns the entry points of a group by name, the owner's first.

    Keel's own distribution owns the names that it carries. Any other name belongs to a distribution with the same name
    (``acme``, ``keel-acme``), or else to the first, in alphabetical order, that carries it. Imports nothing.
    """
    claims: dict[str, list[Carried]] = {}
    for point in carried(group)[0]:
        claims.setdefault(point.name, []).append(point)
    return {name: sorted(points, key=_rank) for name, points in claims.items()}


def damaged(group: str) -> dict[str, KeelError]:
    """Returns the faults in the metadata of distributions that carry, or may carry, a group."""
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
    """True if Keel's own distribution carries the entry point."""
    return normal(point.package) == OWN


def claimed(name: str, owner: Carried, other: Carried, kind: str = "backend") -> KeelError:
    """Returns the error for a distribution that carries a name that another one owns."""
    return KeelError(
        "broken-plugin",
        f"{kind} {name!r} of {other.package} cannot be used: the name belongs to {owner.package}.",
        {p.package: p.value for p in (owner, other)},
        do=f"Uninstall one of them, or change the name in {other.package}.",
    )
