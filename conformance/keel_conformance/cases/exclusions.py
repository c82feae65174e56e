"""Members that no single call tries, and why."""

from __future__ import annotations

from collections.abc import Mapping

from keel.opset import Op

EXEMPT: Mapping[str, str] = {
    "collectives": "A collective needs processes that take part in it: programs over a process group try it.",
    "control flow": "Its arguments are graphs, which no single call of an overload can be given: programs try it.",
    "opaque": "No backend is asked for an opaque operator.",
}
"""Families, and kinds of members, that no case of a single call tries, and why."""
_NO_KERNEL = "PyTorch has no kernel of it for a CPU, where it is called to know what is right."
_GRAPHS = EXEMPT["control flow"]


def why_excluded(op: Op) -> str | None:
    """Why no case of a single call tries a member; None if some do. Cases are of what every PyTorch that is supported
    can be held to.
    """
    if op.family in EXEMPT or op.kind in EXEMPT:
        return EXEMPT.get(op.family) or EXEMPT[op.kind]
    if op.cpu != "":
        return _NO_KERNEL if op.cpu is None else f"Before {op.cpu}, {_NO_KERNEL}"
    if "control" in op.tags:
        return _GRAPHS
    if op.out == ():
        return "It has no result that a call could be judged by."
    return None
