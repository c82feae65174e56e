"""Loads from concatenated tensors (``cat``, ``stack``): one address for a whole row, and one load from there.

The loop IR loads from every piece, under the condition that the element is in the piece, and selects one of the values.
If the selection is the same for all lanes of a loop, it selects an address instead, outside the loop. A row then needs
one load per element instead of one per piece, and the C++ code is shorter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch

from keel import Dim
from keel.loops import (
    Apply,
    Axis,
    Const,
    Div,
    Index,
    Kernel,
    Load,
    Loaded,
    Loop,
    Mod,
    Position,
    Reduce,
    Stmt,
    axes_of,
    loaded_of,
    operands_of,
    results_of,
    walk,
)
from keel_cpp.analysis import for_lanes, has_loops, innermost, survey
from keel_cpp.statements import Address, Picked


def joined(kernel: Kernel) -> Kernel:
    """Replaces loads by one load if the selection among them is uniform along a loop's lanes."""
    if not any(_chooses(loop.body) for loop in innermost(kernel.body)):
        return kernel
    return replace(kernel, body=_used(_Rewrite(kernel).body(kernel.body), set()))


def _chooses(body: Sequence[Stmt]) -> bool:
    return sum(isinstance(s, Load) and s.mask is not None for s in body) > 1


@dataclass(frozen=True)
class _Piece:
    """A load, and the conditions under which it is selected: values that are true then, and values that are false."""

    load: Load
    true: tuple[int, ...]
    false: tuple[int, ...]


class _Rewrite:
    def __init__(self, kernel: Kernel):
        self.facts = survey(kernel)
        self.made = {r: s for s in walk(kernel.body) for r in results_of(s)}
        self.place = {r: n for n, r in enumerate(self.made)}
        self.next = max(self.made, default=-1) + 1
        # By the value behind which they are inserted: statements, and the values that they define.
        self.added: dict[int, dict[Position | Apply, int]] = {}
        self.here: frozenset[int] = frozenset()  # the values of the current loop

    def body(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return self._completed([self.loop(s) if isinstance(s, Loop) else s for s in body])

    def _completed(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The statements with the added ones behind them, also inside loops."""
        out: list[Stmt] = []
        for stmt in body:
            out.append(replace(stmt, body=self._completed(stmt.body)) if isinstance(stmt, Loop) else stmt)
            for r in results_of(stmt):
                out += [replace(s, result=n) for s, n in self.added.get(r, {}).items()]
        return tuple(out)

    def loop(self, loop: Loop) -> Loop:
        if has_loops(loop.body):
            return replace(loop, body=tuple(self.loop(s) if isinstance(s, Loop) else s for s in loop.body))
        lane = for_lanes(loop.axes, loop.body, self.facts) if _chooses(loop.body) else None
        if lane is None:
            return loop
        self.here = frozenset(r for s in loop.body for r in results_of(s))
        return replace(loop, body=tuple(self._picked(s, lane) or s for s in loop.body))

    # -- what is chosen from ----------------------------------------------------------------------------------------

    def _pieces_of(self, stmt: Apply) -> list[_Piece] | None:
        """The loads among which a statement selects; None if it is part of another selection, or selects other
        values.
        """
        users = self.facts.users.get(stmt.result, [])
        if len(users) == 1 and _is_choice(users[0]) and stmt.result in users[0].args[1:]:
            return None
        return self._pieces(stmt, (), ())

    def _pieces(self, choice: Apply, true: tuple[int, ...], false: tuple[int, ...]) -> list[_Piece] | None:
        """The same for a part of the selection. None if a value is not a load, or has other users."""
        flag, *chosen = choice.args
        out: list[_Piece] = []
        for value, more in zip(chosen, (((*true, flag), false), (true, (*false, flag))), strict=True):
            stmt = self.made[value]
            if value not in self.here or len(self.facts.users[value]) != 1:
                return None
            if _is_choice(stmt):
                inner = self._pieces(stmt, *more)
                if inner is None:
                    return None
                out += inner
            elif isinstance(stmt, Load) and stmt.buffer not in self.facts.written:
                out.append(_Piece(stmt, *more))
            else:
                return None
        return out

    def _varies(self, pieces: Sequence[_Piece], lane: Axis) -> bool:
        """True if the selection, or the stride of a load, varies along ``lane``."""
        values, common = _values(pieces), _common(pieces)
        return (
            any(lane in self.facts.varies[v] for v in values)
            or lane in _different_axes(pieces)
            or any(lane in axes_of(self._base(p, common)) for p in pieces)
        )

    def _base(self, piece: _Piece, common: Collection[Term]) -> Index:
        """The terms of one piece's index that are not common to all pieces and not an axis times a size."""
        return Index(
            piece.load.index.const,
            tuple(t for t in piece.load.index.terms if t not in common and not isinstance(t[0], Axis)),
        )

    # -- what takes their place -------------------------------------------------------------------------------------

    def _picked(self, stmt: Stmt, lane: Axis) -> Picked | None:
        """The load from a selected address that replaces a selection; None if that is impossible."""
        if (
            not _is_choice(stmt)
            or (pieces := self._pieces_of(stmt)) is None
            or (mask := self._mask(pieces)) is None
            or self._varies(pieces, lane)
        ):
            return None
        first, common = pieces[0].load, _common(pieces)
        bases = {p.load.result: self._base(p, common) for p in pieces}
        last = max(_values(pieces), key=self.place.__getitem__)
        if isinstance(self.made[last], Reduce) or (last not in self.here and any(map(axes_of, bases.values()))):
            return None

        def choice(instead: Mapping[int, Position]) -> int:
            return self._chosen(stmt.result, instead, self.added.setdefault(last, {}))

        address = choice({p.load.result: Address(0, bases[p.load.result], p.load.buffer) for p in pieces})
        steps = tuple(
            (choice({p.load.result: Position(0, Index(p.load.index.coefficient(a))) for p in pieces}), a)
            for a in _different_axes(pieces)
        )
        within = Index(0, tuple(t for t in first.index.terms if t in common))
        return Picked.at(address, within, steps, first, stmt.result, next(iter(mask), None))

    def _chosen(self, value: int, instead: Mapping[int, Position], known: dict[Position | Apply, int]) -> int:
        """Selects as ``value`` does, but among the values ``instead`` of its loads. Returns the number of the result,
        and adds it to ``known``.
        """
        if value in instead:
            new: Position | Apply = instead[value]
        else:
            choice = self.made[value]
            assert isinstance(choice, Apply)
            flag, one, other = (choice.args[0], *(self._chosen(v, instead, known) for v in choice.args[1:]))
            if one == other:
                return one
            new = Apply(0, "where", (flag, one, other), torch.int64)
        if new not in known:
            known[new], self.next = self.next, self.next + 1
        return known[new]

    # -- conditions -------------------------------------------------------------------------------------------------

    def _mask(self, pieces: Sequence[_Piece]) -> frozenset[int] | None:
        """The condition under which anything is loaded, if there is one; None if it differs between pieces."""
        masks = {self._left(p) for p in pieces}
        return mask if len(masks) == 1 and len(mask := masks.pop()) < 2 else None

    def _left(self, piece: _Piece) -> frozenset[int]:
        """The conditions of a load that do not follow from its selection."""
        if piece.load.mask is None:
            return frozenset()
        return frozenset(m for m in self._conditions(piece.load.mask) if not self._holds(m, piece))

    def _conditions(self, flag: int) -> Iterator[int]:
        stmt = self.made.get(flag)
        if isinstance(stmt, Apply) and stmt.op == "and" and stmt.dtype == torch.bool:
            for arg in stmt.args:
                yield from self._conditions(arg)
        else:
            yield flag

    def _holds(self, flag: int, piece: _Piece) -> bool:
        known = {c for t in piece.true for c in (t, *self._conditions(t))}
        return flag in known or any(self._opposite(flag, f) for f in piece.false)

    def _opposite(self, a: int, b: int) -> bool:
        """True if one of two values is x < y and the other x >= y, for integers."""
        one, other = self.made.get(a), self.made.get(b)
        return (
            isinstance(one, Apply)
            and isinstance(other, Apply)
            and {one.op, other.op} == {"lt", "ge"}
            and tuple(map(self._meaning, one.args)) == tuple(map(self._meaning, other.args))
            and not self.facts.dtypes[one.args[0]].is_floating_point
        )

    def _meaning(self, number: int) -> Const | Position | int:
        """A key of a value. Values that are computed alike have equal keys."""
        stmt = self.made.get(number)
        return replace(stmt, result=0) if isinstance(stmt, Const | Position) else number


def _is_choice(stmt: Stmt | None) -> TypeGuard[Apply]:
    return isinstance(stmt, Apply) and stmt.op == "where"


Term = tuple[Axis | Loaded | Div | Mod, Dim]


def _values(pieces: Sequence[_Piece]) -> set[int]:
    """The values that the selection and the addresses of the pieces depend on."""
    return {v for p in pieces for v in (*p.true, *p.false, *loaded_of(p.load.index))}


def _common(pieces: Sequence[_Piece]) -> set[Term]:
    """The terms that are common to the indices of all pieces."""
    return set(pieces[0].load.index.terms).intersection(*(p.load.index.terms for p in pieces[1:]))


def _different_axes(pieces: Sequence[_Piece]) -> list[Axis]:
    """The axes along which the strides of the pieces differ."""
    common = _common(pieces)
    return list(
        dict.fromkeys(a for p in pieces for a, c in p.load.index.terms if isinstance(a, Axis) and (a, c) not in common)
    )


def _used(body: Sequence[Stmt], used: set[int]) -> tuple[Stmt, ...]:
    """Removes statements whose values are unused, both in ``body`` and in ``used`` behind it."""
    out: list[Stmt] = []
    for stmt in reversed(body):
        if isinstance(stmt, Loop):
            out.append(replace(stmt, body=_used(stmt.body, used)))
        elif not isinstance(stmt, Const | Position | Load | Apply) or stmt.result in used:
            used |= set(operands_of(stmt))
            out.append(stmt)
    return tuple(reversed(out))
