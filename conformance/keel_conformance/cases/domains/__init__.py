"""The domain of each member: its family's own, else the generic one."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from keel import MEMBERS, Op
from keel_conformance.cases.domain import Domain
from keel_conformance.cases.domains import axis, pointwise
from keel_conformance.cases.generic import generic

BUILDERS: tuple[Callable[[Op], Domain | None], ...] = (pointwise.build, axis.build)
"""Each gives the domain of a member of its families, None for others."""

EXEMPT: Mapping[str, str] = {
    "collectives": "A collective needs processes that take part in it: programs over a process group try it.",
    "control flow": "Its arguments are graphs, which no single call of an overload can be given: programs try it.",
    "opaque": "No backend is asked for an opaque operator.",
}
"""Families, and kinds of members, that no case of a single call tries, and why."""


def exempt(op: Op) -> str | None:
    """Why no case of a single call tries a member; None if some do."""
    return EXEMPT.get(op.family) or EXEMPT.get(op.kind)


@cache
def domain_of(name: str) -> Domain | None:
    """The domain of a member; None for one that is exempt, or that no call is known of."""
    op = MEMBERS[name]
    if exempt(op) is not None:
        return None
    return next((d for build in BUILDERS if (d := build(op)) is not None), None) or generic(op)
