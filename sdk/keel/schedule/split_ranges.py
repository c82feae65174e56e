"""Cuts loops where comparisons of positions change their outcome: index set splitting, as LLVM calls it.

A concatenation chooses among its operands by position, so each element asks of every operand whether it is its own, and
a loop over 25 operands has 25 masked loads for one that counts.  Cut at the boundaries between operands, it becomes a
loop for each, in which every comparison is decided and what nothing needs is gone.  Only innermost loops are cut: a
choice that is the same for a whole row costs little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from keel.loops.index import Axis, Index, bounds, index, substitute
from keel.loops.ir import Apply, Check, Const, Kernel, Load, Loop, Position, Reduce, Scan, Stmt, Store, results_of, walk
from keel.plugin import Limits
from keel.schedule.loop_order import rename_canonically
from keel.schedule.split_reduction import live

PAYS = 0.75
"""The most work for an element, beside that in one loop, with which pieces are better."""
Range = tuple[int, int]
ENDS: Mapping[str, tuple[int, ...]] = {"lt": (0,), "ge": (0,), "le": (1,), "gt": (1,), "eq": (0, 1), "ne": (0, 1)}
"""Where the outcome of each comparison of a position with a number changes, counted from that number."""


def split_ranges(kernel: Kernel, limits: Limits) -> Kernel:
    """Returns ``kernel``, which has canonical names, with loops in pieces where that saves work, by ``limits.pieces``
    and ``limits.vector``.
    """
    body = _Splitter(kernel, limits).block(kernel.body) if limits.pieces > 1 else kernel.body
    return kernel if body == kernel.body else rename_canonically(replace(kernel, body=body))


class _Splitter:
    def __init__(self, kernel: Kernel, limits: Limits):
        self.limits = limits
        stmts = list(walk(kernel.body))
        self.constants = {s.result: s.value for s in stmts if isinstance(s, Const) and type(s.value) is int}
        self.values = count(1 + max((r for s in stmts for r in results_of(s)), default=0))
        self.names = count()

    def block(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in (self.loop(s) if isinstance(s, Loop) else (s,)))

    def loop(self, loop: Loop) -> tuple[Loop, ...]:
        loop = replace(loop, body=self.block(loop.body))
        if loop.kind != "parallel" or not loop.axes or any(isinstance(s, Loop) for s in loop.body):
            return (loop,)
        *outer, axis = loop.axes
        pieces = list(pairwise(self.cuts(loop.body, axis)))
        lengths = [high - low for low, high in pieces]
        if not 1 < len(pieces) <= self.limits.pieces or min(lengths) < self.limits.vector:
            return (loop,)
        inner = [self.piece(loop.body, axis, low, high) for low, high in pieces]
        work = sum(n * _work(p.body) for n, p in zip(lengths, inner, strict=True)) / sum(lengths)
        if work > PAYS * _work(loop.body):
            return (loop,)
        inner = [p for p in inner if p.body]
        return (Loop("parallel", tuple(outer), tuple(inner)),) if outer and inner else tuple(inner)

    def cuts(self, body: Sequence[Stmt], axis: Axis) -> list[int]:
        """Returns where pieces of the axis begin, and its size; nothing but these two if its size is not known."""
        if not isinstance(axis.size, int):
            return []
        positions = {s.result: s.index for s in walk(tuple(body)) if isinstance(s, Position)}
        places = {0, axis.size}
        for s in walk(tuple(body)):
            if isinstance(s, Apply) and s.op in ENDS and len(s.args) == 2:
                one, other = s.args
                if one in positions and other in self.constants:
                    for end in ENDS[s.op]:
                        places.update(changes(positions[one], axis, self.constants[other] + end))
        return sorted(p for p in places if 0 <= p <= axis.size)

    def piece(self, body: Sequence[Stmt], axis: Axis, low: int, high: int) -> Loop:
        """Returns the innermost loop from ``low`` to ``high``."""
        part = Axis(f"{axis.name}_{next(self.names)}", high - low)
        known = _Known({axis: index(part) + low}, self, dict(self.constants))
        return Loop("parallel", (part,), live(known.block(body)))


def changes(position: Index, axis: Axis, end: int) -> Iterator[int]:
    """Yields where ``position >= end`` may change along the axis, whatever the other axes are."""
    step = position.coefficient(axis)
    rest = bounds(substitute(position, {axis: Index()}))
    if not isinstance(step, int) or step == 0 or rest is None:
        return
    for other in rest:
        if isinstance(other, int):
            yield -((other - end) // step) if step > 0 else (other - end) // -step + 1


def _work(body: Sequence[Stmt]) -> int:
    return sum(isinstance(s, Load | Apply) for s in walk(tuple(body)))


@dataclass
class _Known:
    """What is known of values within a piece, on the way through its statements; all get new numbers."""

    axes: Mapping[Axis, Index]
    splitter: _Splitter
    ranges: dict[int, int | Range]
    outcomes: dict[int, bool] = field(default_factory=dict)
    number: dict[int, int] = field(default_factory=dict)

    def block(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(new for s in body if (new := self.statement(s)) is not None)

    def statement(self, s: Stmt) -> Stmt | None:
        """Returns the statement in this piece; None if it does nothing, or gives what another gives."""
        match s:
            case Apply(op="where") if s.args[0] in self.outcomes:
                self.number[s.result] = self.of(s.args[1 if self.outcomes[s.args[0]] else 2])
                return None
            case Apply():
                if (outcome := self.outcome(s)) is not None:
                    self.outcomes[s.result] = outcome
                    return Const(self.new(s.result), outcome, s.dtype)
                return replace(s, result=self.new(s.result), args=tuple(map(self.of, s.args)))
            case Position():
                at = self.at(s.index)
                match bounds(at):
                    case (int(low), int(high)):
                        self.ranges[s.result] = (low, high)
                return Position(self.new(s.result), at)
            case Const():
                if isinstance(s.value, bool):
                    self.outcomes[s.result] = s.value
                return replace(s, result=self.new(s.result))
            case Load():
                return replace(s, result=self.new(s.result), index=self.at(s.index), mask=self.mask(s.mask))
            case Check():
                return replace(s, result=self.new(s.result), value=self.of(s.value), mask=self.mask(s.mask))
            case Store():
                if s.mask is not None and self.outcomes.get(s.mask) is False:
                    return None
                return replace(s, index=self.at(s.index), value=self.of(s.value), mask=self.mask(s.mask))
            case Loop() | Reduce() | Scan():
                raise AssertionError("an innermost parallel loop has neither loops nor folds")

    def outcome(self, s: Apply) -> bool | None:
        """Returns what a comparison, or a connection of such, is throughout the piece; None if not one thing."""
        if s.op in ENDS and all(a in self.ranges for a in s.args):
            return compared(s.op, *(r if isinstance(r := self.ranges[a], tuple) else (r, r) for a in s.args))
        outcomes = [self.outcomes.get(a) for a in s.args]
        if s.op == "and" and (False in outcomes or all(outcomes)):
            return all(outcomes)
        if s.op == "or" and (True in outcomes or None not in outcomes):
            return True in outcomes
        if s.op == "not" and outcomes[0] is not None:
            return not outcomes[0]
        return None

    def new(self, result: int) -> int:
        self.number[result] = next(self.splitter.values)
        return self.number[result]

    def of(self, value: int) -> int:
        return self.number.get(value, value)

    def at(self, i: Index) -> Index:
        return substitute(i, self.axes, self.of)

    def mask(self, value: int | None) -> int | None:
        return None if value is None or self.outcomes.get(value) is True else self.of(value)


def compared(op: str, one: Range, other: Range) -> bool | None:
    """Returns the outcome of comparing any number of one range with any of another; None if it depends on them."""
    if op in ("gt", "le"):
        outcome = compared("lt", other, one)
        return outcome if op == "gt" or outcome is None else not outcome
    if op in ("eq", "ne"):
        unlike = one[1] < other[0] or other[1] < one[0]
        same = one == other and one[0] == one[1]
        return (op == "ne") if unlike else (op == "eq") if same else None
    outcome = True if one[1] < other[0] else False if one[0] >= other[1] else None
    return outcome if op == "lt" or outcome is None else not outcome
