"""Which axes lie next to each other in memory: the order of a loop's axes, and tiles where two orders meet.

The order of parallel and reduce axes is free; neighboring lanes should access neighboring elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from keel import Dim
from keel.loops import Axis, Index, Load, Loop, Position, Stmt, Store, evaluate, index, substitute, walk

Body = tuple[Stmt, ...]

TILES = (64, 32)  # how far a tile may reach along the axis that is split
# Sizes that are not known are taken to be large and odd.
_GUESS: Mapping[str, int] = defaultdict(lambda: 997)


def arranged(loop: Loop) -> Loop:
    """``loop`` with its axes, and those of the loops in it, in the order of memory."""
    body = tuple(arranged(s) if isinstance(s, Loop) else s for s in loop.body)
    return Loop(loop.kind, loop.axes if loop.kind == "scan" else by_stride(loop.axes, body), body)


def by_stride(axes: tuple[Axis, ...], body: Body) -> tuple[Axis, ...]:
    """The axes, the closest elements last, as the access that uses most of them has them; stores before loads."""
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
    """A loop without loops in it that stores along one axis and loads along another, as rows along the second with an
    inner loop along the first: a block of both has whole lines of memory on either side."""
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
