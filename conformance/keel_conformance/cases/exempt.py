"""Members that no single call tries, and why."""
from __future__ import annotations

from collections.abc import Mapping

from keel import Op

EXEMPT: Mapping[str, str] = {
    "collectives": "A collective needs processes that take part in it: programs over a process group try it.",
    "control flow": "Its arguments are graphs, which no single call of an overload can be given: programs try it.",
    "opaque": "No backend is asked for an opaque operator.",
}
"""Families, and kinds of members, that no case of a single call tries, and why."""


def exempt(op: Op) -> str | None:
    """Why no case of a single call tries a member; None if some do."""
    return EXEMPT.get(op.family) or EXEMPT.get(op.kind)
