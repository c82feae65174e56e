"""Values that several loops over a row compute alike: the first keeps them in an array, the others read it.

The exponentials of a softmax are needed for their sum and again for the quotients; computing them twice costs more
than an array that stays in the first-level cache.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keel import (
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
    results_of,
)
from keel_cpp.facts import Facts, has_loops, is_small, used_by
from keel_cpp.tables import COSTS

LONGEST = 4096
"""Elements of a row that are kept, at most."""
WORTH = 3
"""Scalar operations, loads among them, that a kept value must save each time."""


@dataclass(frozen=True)
class Kept:
    """The loops of a row without what they need not compute any more; of each kept value the length of its array; of
    each value that is read back the kept one and the axis that counts through it."""

    body: tuple[Stmt, ...]
    arrays: dict[int, int]
    axes: dict[int, Axis]
    read: dict[int, int]


def kept_rows(body: Sequence[Stmt], facts: Facts) -> Kept:
    found = _Rows(facts)
    return Kept(tuple(found.visit(s) for s in body), found.arrays, found.axes, found.read)


class _Rows:
    def __init__(self, facts: Facts):
        self.facts = facts
        self.first: dict[tuple[int, Any], int] = {}             # (length, key) -> the value that was computed first
        self.arrays: dict[int, int] = {}
        self.axes: dict[int, Axis] = {}
        self.read: dict[int, int] = {}

    def visit(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Loop) or has_loops(stmt.body) or is_small(stmt) or len(stmt.axes) != 1:
            return stmt
        (axis,) = stmt.axes
        if not isinstance(axis.size, int) or axis.size > LONGEST:
            return stmt
        keys = self._keys(stmt, axis)
        worth = self._worth(stmt, axis, keys)
        live: set[int] = set()
        for inner in reversed(stmt.body):
            if not isinstance(inner, Store | Reduce | Scan) and not live & set(results_of(inner)):
                continue                                        # what needed it is read back
            known = [self.first.get((axis.size, keys[r])) for r in results_of(inner) if r in keys]
            if known and known[0] is not None and worth & set(results_of(inner)):
                (r,) = results_of(inner)
                self.read[r] = known[0]
                self.arrays[known[0]] = axis.size
                self.axes[r] = axis
            else:
                live |= set(used_by(inner))
        body = tuple(s for s in stmt.body if self._needed(s, live))
        for r in (r for s in body for r in results_of(s)):
            if r in keys and r not in self.read and axis in self.facts.varies[r]:
                self.first.setdefault((axis.size, keys[r]), r)
                self.axes[r] = axis
        return replace(stmt, body=body)

    def _needed(self, stmt: Stmt, live: set[int]) -> bool:
        made = set(results_of(stmt))
        return isinstance(stmt, Store | Reduce | Scan) or bool(made & live) or bool(made & self.read.keys())

    def _keys(self, loop: Loop, axis: Axis) -> dict[int, Any]:
        """What each value is made of, with the loop's axis under a common name; equal keys are equal values."""
        keys: dict[int, Any] = {}

        def key(n: int) -> Any:
            return keys.get(n, n)

        for s in loop.body:
            match s:
                case Const():
                    keys[s.result] = ("const", repr(s.value), s.dtype)
                case Position():
                    keys[s.result] = ("position", _index_key(s.index, axis, key))
                case Load() if s.buffer not in self.facts.written:
                    mask = None if s.mask is None else key(s.mask)
                    keys[s.result] = ("load", s.buffer, _index_key(s.index, axis, key), mask)
                case Apply():
                    keys[s.result] = (s.op, tuple(map(key, s.args)), s.dtype)
                case _:
                    pass
        return keys

    def _worth(self, loop: Loop, axis: Axis, keys: Mapping[int, Any]) -> set[int]:
        """The values known from an earlier loop that are dear enough, what they need being read back too."""
        costs: dict[int, int] = {}
        worth: set[int] = set()
        for s in loop.body:
            own = COSTS.get(s.op, 1) if isinstance(s, Apply) else 1 if isinstance(s, Load) else 0
            for r in results_of(s):
                costs[r] = own + sum(costs.get(v, 0) for v in used_by(s))
                if costs[r] >= WORTH and r in keys and (axis.size, keys[r]) in self.first:
                    worth.add(r)
                    costs[r] = 1
        return worth


def _index_key(i: Index, axis: Axis, key: Callable[[int], Any]) -> Any:
    """The index with the axis under a common name and loaded values by their keys."""
    return i.const, frozenset((_atom_key(atom, axis, key), c) for atom, c in i.terms)


def _atom_key(atom: Any, axis: Axis, key: Callable[[int], Any]) -> Any:
    match atom:
        case Axis():
            return "axis" if atom == axis else atom
        case Loaded():
            return "loaded", key(atom.value), atom.bound
        case Div() | Mod():
            return type(atom).__name__, _index_key(atom.of, axis, key), atom.by
