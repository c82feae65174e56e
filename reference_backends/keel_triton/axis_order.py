"""Orders a loop's axes as they are in memory, and makes tiles if two accesses need different orders.

The order of parallel and reduce axes is free; neighboring lanes should access neighboring elements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from keel import Dim
from keel.loops import Axis, Index, Load, Loop, Position, Stmt, Store, evaluate, index, substitute, walk

Body = tuple[Stmt, ...]

TILES = (64, 32)  # the extent of a tile along the axis that is split
# Unknown sizes are assumed to be large and odd.
_GUESS: Mapping[str, int] = defaultdict(lambda: 997)


def arranged(loop: Loop) -> Loop:
    """Sorts the axes of ``loop``, and of the loops in it, in the order of memory."""
    body = tuple(arranged(s) if isinstance(s, Loop) else s for s in loop.body)
    return Loop(loop.kind, loop.axes if loop.kind == "scan" else by_stride(loop.axes, body), body)


def by_stride(axes: tuple[Axis, ...], body: Body) -> tuple[Axis, ...]:
    """The axes sorted by descending stride in the access that uses most of them. Stores take precedence over loads."""
    if len(axes) < 2:
        return axes
    accesses = [s for s in walk(body) if isinstance(s, Load | Store)]
    if not accesses:
        return axes
    leader = max(accesses, key=lambda s: (sum(s.index.coefficient(a) != 0 for a in axes), isinstance(s, Store)))
    return tuple(sorted(axes, key=lambda a: _far(stride(leader.index, a))))


def stride(i: Index, axis: Axis) -> int:
    return abs(evaluate(i.coefficient(axis), _GUESS))


def _far(n: int) -> tuple[bool, int]:
    return n != 0, -n


def tiled(axes: tuple[Axis, ...], body: Body) -> tuple[tuple[Axis, ...], Body]:
    """Splits an innermost loop that stores contiguously along one axis and loads along another: rows along the second
    axis, with an inner loop along the first. A block of both then uses whole cache lines on both sides.
    """
    if len(axes) < 2 or any(isinstance(s, Loop) for s in body):
        return axes, body
    *others, last = axes
    if not _long(last.size):
        return axes, body
    across = [
        a
        for s in body
        if isinstance(s, Load) and stride(s.index, last) > 1
        for a in others
        if _long(a.size) and stride(s.index, a) == 1
    ]
    if not across:
        return axes, body
    row = max(across, key=across.count)
    others.remove(row)
    part = next((t for t in TILES if isinstance(last.size, int) and last.size % t == 0), None)
    if part is None or last.size <= TILES[0]:
        return (*others, row), (Loop("parallel", (last,), body),)
    outer, inner = Axis(f"{last.name}a", last.size // part), Axis(f"{last.name}b", part)
    split = {last: index(outer) * part + index(inner)}
    moved = tuple(
        replace(s, index=substitute(s.index, split)) if isinstance(s, Load | Store | Position) else s for s in body
    )
    return (*others, outer, row), (Loop("parallel", (inner,), moved),)


def _long(size: Dim) -> bool:
    return not isinstance(size, int) or size > 16
