"""Caches values that several loops over a row compute: the first loop stores them in an array, and the others read it.

The exponentials of a softmax are needed for their sum and again for the quotients; computing them twice costs more
than an array that stays in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from keel.loops import (
    Apply,
    Axis,
    Const,
    Div,
    Index,
    Load,
    Loaded,
    Loop,
    Mod,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    operands_of,
    results_of,
)
from keel_cpp.analysis import Facts, for_lanes, has_loops, in_order, is_small
from keel_cpp.op_table import COSTS
from keel_cpp.statements import Address

LONGEST = 4096
"""The most elements of a cached row."""
MOST = 8 * LONGEST
"""The most elements of all cached rows together. They are on the stack, which is small in threads."""
LANES = 32
"""A multiple of the lanes of any loop."""
WORTH = 3
"""The least number of scalar operations, with loads, that a cached value must save per element."""


@dataclass(frozen=True)
class Place:
    """The element of an array for a point of a loop: the axes that index it, the last of which has the lanes, and the
    stride of each.
    """

    axes: tuple[Axis, ...]
    steps: tuple[int, ...]
    length: int

    @staticmethod
    def of(axes: Sequence[Axis], lane: Axis) -> Place | None:
        """The place of the points of ``axes``; None if there are too many of them, or their number is unknown. A row is
        padded to a whole number of vectors.
        """
        ordered, steps, length = [*(a for a in axes if a != lane), lane], list[int](), 1
        for axis in reversed(ordered):
            if not isinstance(axis.size, int):
                return None
            steps.append(length)
            length *= axis.size if axis != lane else -(-axis.size // LANES) * LANES
        return Place(tuple(ordered), tuple(reversed(steps)), length) if length <= LONGEST else None

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """A key that is equal for loops that run through the same points in the same way."""
        return tuple(a.size for a in self.axes), self.steps

    def index(self, name: Callable[[str], str]) -> str:
        """The text of the element's index."""
        return " + ".join(
            name(a.name) if n == 1 else f"{n} * {name(a.name)}" for a, n in zip(self.axes, self.steps, strict=True)
        )


@dataclass(frozen=True)
class CachedRows:
    """The loops of a row without recomputation, the array length of each cached value, the place of each value that is
    cached or read back, and for each value that is read back the cached one.
    """

    body: tuple[Stmt, ...]
    arrays: dict[int, int]
    places: dict[int, Place]
    read: dict[int, int]


def kept_rows(body: Sequence[Stmt], facts: Facts) -> CachedRows:
    cached = _Rows(facts)
    return CachedRows(tuple(cached.visit(s) for s in body), cached.arrays, cached.places, cached.read)


class _Rows:
    def __init__(self, facts: Facts):
        self.facts = facts
        self.first: dict[tuple[Hashable, Hashable], int] = {}  # (kind of place, key) -> the value computed first
        self.arrays: dict[int, int] = {}
        self.places: dict[int, Place] = {}
        self.read: dict[int, int] = {}

    def visit(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Loop) or has_loops(stmt.body) or is_small(stmt):
            return stmt
        lane = for_lanes(stmt.axes, stmt.body, self.facts)
        if lane is None or (len(stmt.axes) > 1 and (stmt.kind == "scan" or in_order(stmt))):
            return stmt  # it is not vectorized
        place = Place.of(stmt.axes, lane)
        return stmt if place is None else self._reduced(stmt, place)

    def _reduced(self, loop: Loop, place: Place) -> Loop:
        """Removes from a loop the values that are read back. Registers the values that it computes."""
        keys = self._keys(loop, place)
        worth = self._worth(loop, place, keys)
        live: set[int] = set()
        for inner in reversed(loop.body):
            if not isinstance(inner, Store | Reduce | Scan) and not live & set(results_of(inner)):
                continue  # its only users are read back
            known = [self.first.get((place.kind, keys[r])) for r in results_of(inner) if r in keys]
            if known and known[0] is not None and worth & set(results_of(inner)) and self._room(known[0], place):
                (r,) = results_of(inner)
                self.read[r] = known[0]
                self.arrays[known[0]] = place.length
                self.places[r] = place
            else:
                live |= set(operands_of(inner))
        body = tuple(s for s in loop.body if self._needed(s, live))
        for r in (r for s in body for r in results_of(s)):
            if r in keys and r not in self.read and self.facts.varies[r].issuperset(place.axes):
                self.first.setdefault((place.kind, keys[r]), r)
                self.places[r] = place
        return replace(loop, body=body)

    def _room(self, number: int, place: Place) -> bool:
        """True if the value has an array already, or the stack has room for one."""
        return number in self.arrays or sum(self.arrays.values()) + place.length <= MOST

    def _needed(self, stmt: Stmt, live: set[int]) -> bool:
        made = set(results_of(stmt))
        return isinstance(stmt, Store | Reduce | Scan) or bool(made & live) or bool(made & self.read.keys())

    def _keys(self, loop: Loop, place: Place) -> dict[int, Hashable]:
        """A key for the computation of each value, with common names for the loop's axes. Equal keys mean equal
        values.
        """
        keys: dict[int, Hashable] = {}
        names = {a: ("axis", k) for k, a in enumerate(place.axes)}

        def key(n: int) -> Hashable:
            return keys.get(n, n)

        for s in loop.body:
            match s:
                case Const():
                    keys[s.result] = ("const", repr(s.value), s.dtype)
                case Address():
                    keys[s.result] = ("address", s.buffer, _index_key(s.index, names, key))
                case Position():
                    keys[s.result] = ("position", _index_key(s.index, names, key))
                case Load() if s.buffer not in self.facts.written:
                    mask = None if s.mask is None else key(s.mask)
                    keys[s.result] = ("load", s.buffer, _index_key(s.index, names, key), mask)
                case Apply():
                    keys[s.result] = (s.op, tuple(map(key, s.args)), s.dtype)
                case _:
                    pass
        return keys

    def _worth(self, loop: Loop, place: Place, keys: Mapping[int, Hashable]) -> set[int]:
        """The values of an earlier loop that are expensive enough to read back, if their operands are read back too."""
        costs: dict[int, int] = {}
        worth: set[int] = set()
        for s in loop.body:
            own = COSTS.get(s.op, 1) if isinstance(s, Apply) else 1 if isinstance(s, Load) else 0
            for r in results_of(s):
                costs[r] = own + sum(costs.get(v, 0) for v in operands_of(s))
                if costs[r] >= WORTH and r in keys and (place.kind, keys[r]) in self.first:
                    worth.add(r)
                    costs[r] = 1
        return worth


def _index_key(i: Index, names: Mapping[Axis, Hashable], key: Callable[[int], Hashable]) -> Hashable:
    """The index with common names for axes, and keys for loaded values."""
    return i.const, frozenset((_atom_key(atom, names, key), c) for atom, c in i.terms)


def _atom_key(
    atom: Axis | Loaded | Div | Mod, names: Mapping[Axis, Hashable], key: Callable[[int], Hashable]
) -> Hashable:
    match atom:
        case Axis():
            return names.get(atom, atom)
        case Loaded():
            return "loaded", key(atom.value), atom.bound
        case Div() | Mod():
            return type(atom).__name__, _index_key(atom.of, names, key), atom.by
