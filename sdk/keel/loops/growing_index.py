"""Which elements correspond to each other if a symbolic size of a loop form becomes larger.

An element of a tensor has the same coordinates at both sizes, except in a dimension with blocks. That is one in which
several dimensions have become one: ``(4, n)`` elements that are viewed as ``4 * n``. Its coordinate ``q * n + t``, with
t less than n, is ``q * m + t`` at the larger size m: it is in the same block, at the same place. The blocks of a
dimension have a size that mentions the symbol: n here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keel.loops.index import Axis, Div, Index, Loaded, Mod, is_within, lone_atom, quotient, split
from keel.loops.symbolic_sizes import canonicalize
from keel.types import Dim

Blocks = tuple[Dim | None, ...]
"""The size of the blocks of each dimension of a tensor; None for a dimension without blocks."""


@dataclass(frozen=True)
class GrowingIndex:
    """Compares indices at two values of a size. ``mentions`` says whether a size depends on it. ``blocks`` has the
    sizes of the blocks of axes that have some. ``below`` has what the values of loaded indices are less than at both
    sizes, where that is known; a Check makes others less than their bounds.
    """

    mentions: Callable[[Any], bool]
    blocks: Mapping[Axis, Dim]
    below: Mapping[int, Dim | None]

    def is_at(self, i: Index, block: Dim | None) -> bool:
        """True if an index finds the corresponding element of a dimension with blocks of this size, or without."""
        return self.is_same(i) if block is None else self.is_in_block(i, block)

    def is_same(self, i: Index) -> bool:
        """True if an index has the same value at both sizes, for corresponding values of its axes."""
        return not self.mentions(i.const) and all(
            not self.mentions(factor) and self._is_same_atom(atom) for atom, factor in i.terms
        )

    def is_in_block(self, i: Index, block: Dim) -> bool:
        """True if an index is in the same block of this size, at the same place."""
        if self._block_of(i) == block:
            return True
        number, place = split(i, block)
        return self.is_same(number) and self.is_same(place) and is_within(place, block)

    def _is_same_atom(self, atom: Axis | Loaded | Div | Mod) -> bool:
        match atom:
            case Axis():
                return atom not in self.blocks
            case Loaded(value=value, bound=bound):
                return not self.mentions(bound) or self.below.get(value) == bound
            case Div(of=of, by=by):
                return self.is_in_block(of, by) if self.mentions(by) else self.is_same(of)
            case Mod(of=of, by=by):
                if self.mentions(by):
                    return self.is_in_block(of, by)
                block = self._block_of(of)
                return self.is_same(of) or (block is not None and quotient(block, by) is not None)

    def _block_of(self, i: Index) -> Dim | None:
        """The size of blocks of an index that is an axis with blocks, or the quotient of one."""
        match lone_atom(i):
            case Axis() as axis:
                return self.blocks.get(axis)
            case Div(of=of, by=by) if not self.mentions(by):
                block = self._block_of(of)
                return None if block is None else quotient(block, by)
        return None


def blocks_of_axes(reads: Iterable[tuple[Sequence[Index], Blocks]], mentions: Callable[[Any], bool]) -> dict[Axis, Dim]:
    """The blocks of axes that read these coordinates of tensors with these blocks. ``GrowingIndex`` has to check them:
    the first read of each axis decides.
    """
    blocks: dict[Axis, Dim] = {}
    for at, of_dimensions in reads:
        for i, block in zip(at, of_dimensions or (None,) * len(at), strict=True):
            sizes = [*_divided(i, mentions)]
            axis, by = _quotient(i)
            if axis is not None and block is not None:
                sizes.append((axis, canonicalize(block * by)))
            for axis, size in sizes:
                if mentions(axis.size) and axis.size != size:  # a single block is a dimension without blocks
                    blocks.setdefault(axis, size)
    return blocks


def _divided(i: Index, mentions: Callable[[Any], bool]) -> Iterator[tuple[Axis, Dim]]:
    """The axes that an index divides by a size that depends on the symbol, with that size."""
    for atom, _ in i.terms:
        if not isinstance(atom, Div | Mod):
            continue
        axis, by = _quotient(atom.of)
        if axis is not None and mentions(atom.by):
            yield axis, canonicalize(atom.by * by)
        else:
            yield from _divided(atom.of, mentions)


def _quotient(i: Index) -> tuple[Axis | None, Dim]:
    """The axis and the divisor of an index ``axis // divisor``; no axis if it is another index."""
    match lone_atom(i):
        case Axis() as axis:
            return axis, 1
        case Div(of=of, by=by) if isinstance(divided := lone_atom(of), Axis):
            return divided, by
    return None, 1
