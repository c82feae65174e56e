"""Decides if two tensors can share loops, by solving coordinate equations over digits.

Every dimension is written as a mixed-radix sum of digits (axes). A consumer reads a tensor at coordinates c(x), and the
tensor is made at g(y). They can share loops if c(x) = g(y) has a solution that maps each digit x to one group axis y.
Reshapes split and merge dimensions, so digits are refined until both sides have the same radices; permutations need no
refinement. If an equation cannot be divided into digits, there is no solution, and the tensors are not fused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from keel.loops.index import Axis, Div, Index, Mod, axes_of, index, quotient, substitute
from keel.types import Dim


class NoSolution(Exception):
    """The loops do not match."""


@dataclass
class MixedRadix:
    """A set of axes that may be refined: ``splits`` maps each axis that was split to the sum that replaced it."""

    prefix: str
    fresh: count[int] = field(default_factory=count)
    splits: dict[Axis, Index] = field(default_factory=dict)

    def new(self, size: Dim) -> Axis:
        return Axis(f"{self.prefix}{next(self.fresh)}", size)

    def split(self, axis: Axis, low: Dim) -> tuple[Axis, Axis]:
        """``axis`` = low size * high + low digit."""
        high = quotient(axis.size, low)
        if high is None:
            raise NoSolution
        outer, inner = self.new(high), self.new(low)
        self.splits[axis] = index(outer) * low + inner
        return outer, inner

    def now(self, i: Index) -> Index:
        """Returns ``i`` with all splits made so far."""
        while self.splits and not self.splits.keys().isdisjoint(axes_of(i)):
            i = substitute(i, self.splits)
        return i

    def copy(self) -> MixedRadix:
        return MixedRadix(self.prefix, self.fresh, dict(self.splits))


def flat(i: Index, digits: MixedRadix) -> Index:
    """Splits the digits of ``i`` until no Div or Mod is left. Raises NoSolution if a digit cannot be split."""
    i = digits.now(i)
    while (atom := next((a for a, _ in i.terms if isinstance(a, Div | Mod)), None)) is not None:
        inner = atom.of
        axis = next((a for a, c in inner.terms if isinstance(a, Axis) and _splits(a, c, atom.by)), None)
        if axis is None:
            raise NoSolution
        low = quotient(atom.by, inner.coefficient(axis))
        assert low is not None
        digits.split(axis, low)
        i = digits.now(i)
    return i


def _splits(axis: Axis, coefficient: Dim, by: Dim) -> bool:
    low = quotient(by, coefficient)
    return low is not None and low != 1 and low != axis.size and quotient(axis.size, low) is not None


def radix(i: Index, size: Dim) -> list[Axis] | None:
    """Returns the digits of ``i``, lowest first, if it counts through 0 .. size-1 exactly once; else None."""
    if i.const != 0:
        return None
    left = {a: c for a, c in i.terms if isinstance(a, Axis)}
    if len(left) != len(i.terms):
        return None
    step: Dim = 1
    out: list[Axis] = []
    while left:
        axis = next((a for a, c in left.items() if c == step), None)
        if axis is None:
            return None
        del left[axis]
        out.append(axis)
        step = (index(step) * axis.size).const
    return out if step == size else None


@dataclass
class Solution:
    """Digits ``x`` of one side given as axes of the other, with the refinements that both needed."""

    x: MixedRadix
    y: MixedRadix
    matched: dict[Axis, Axis] = field(default_factory=dict)

    def copy(self) -> Solution:
        return Solution(self.x.copy(), self.y.copy(), dict(self.matched))

    def equate(self, lefts: Iterable[Index], rights: Iterable[Index], sizes: Iterable[Dim]) -> None:
        """Adds the equations left(x) = right(y), dimension by dimension. Raises NoSolution."""
        for left, right, size in zip(lefts, rights, sizes, strict=True):
            self._equate(left, right, size)

    def _equate(self, left: Index, right: Index, size: Dim) -> None:
        if size == 1:
            return
        left, right = flat(left, self.x), flat(right, self.y)
        self._settle()
        left, right = self.x.now(left), self.y.now(right)
        xs, ys = radix(left, size), radix(right, size)
        if xs is None or ys is None:
            raise NoSolution
        while xs and ys:
            x, y = xs.pop(0), ys.pop(0)
            if x.size == y.size:
                self._give(x, y)
            elif (high := quotient(y.size, x.size)) is not None and high != 1:
                outer, inner = self.y.split(y, x.size)
                self._settle()
                self._give(x, inner)
                ys.insert(0, outer)
            elif (high := quotient(x.size, y.size)) is not None and high != 1 and x not in self.matched:
                outer, inner = self.x.split(x, y.size)
                self._give(inner, y)
                xs.insert(0, outer)
            else:
                raise NoSolution
        if xs or ys:
            raise NoSolution

    def _give(self, x: Axis, y: Axis) -> None:
        if self.matched.setdefault(x, y) != y or sum(1 for v in self.matched.values() if v == y) > 1:
            raise NoSolution

    def _settle(self) -> None:
        """If one of a matched pair was split, splits the other the same way."""
        while pair := next(((x, y) for x, y in self.matched.items() if x in self.x.splits or y in self.y.splits), None):
            x, y = pair
            del self.matched[x]
            if x not in self.x.splits:
                self.x.split(x, low_of(self.y.splits[y]))
            if y not in self.y.splits:
                self.y.split(y, low_of(self.x.splits[x]))
            for above, below in zip(pair_of(self.x.splits[x]), pair_of(self.y.splits[y]), strict=True):
                self._give(above, below)

    def value(self, i: Index, more: Mapping[Axis, Axis] | None = None) -> Index:
        """Returns ``i`` over the digits x as an index over the axes y."""
        i = self.x.now(i)
        table = {x: index(y) for x, y in {**self.matched, **(more or {})}.items()}
        return substitute(i, table)


def pair_of(split: Index) -> tuple[Axis, Axis]:
    """Returns the (high, low) digits of a split."""
    digits = [(a, c) for a, c in split.terms if isinstance(a, Axis)]
    (low,) = [a for a, c in digits if c == 1]
    (high,) = [a for a, c in digits if c != 1]
    return high, low


def low_of(split: Index) -> Dim:
    return pair_of(split)[1].size
