"""A topological order of units that is kept while units grow: the dynamic order of Pearce and Kelly (A dynamic
topological sort algorithm for directed acyclic graphs, ACM Journal of Experimental Algorithmics 11, 2007).

A unit is a future step, of one or several nodes. A unit needs another one as a whole: a group that is early because of
its first node may need a late unit for its last node. So the positions of nodes do not show which unit can reach which,
but ranks in this order do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

Unit = TypeVar("Unit")


class UnitOrder(Generic[Unit]):
    """Units in an order in which they can run. ``before`` gives the units that one needs, as they are now."""

    def __init__(self, before: Callable[[Unit], Sequence[Unit]]):
        self._before = before
        self._units: list[Unit | None] = []  # by rank; None where a unit became a part of another
        self._rank: dict[int, int] = {}  # by id: units may be unhashable

    def append(self, unit: Unit) -> None:
        """Appends a new unit, which no other unit needs yet."""
        self._rank[id(unit)] = len(self._units)
        self._units.append(unit)

    def reaches(self, units: Iterable[Unit], goal: Unit) -> bool:
        """True if one of ``units`` is ``goal`` or needs it, directly or through others."""
        low = self._rank[id(goal)]
        return low in self._needed(units, low, goal)

    def put_after(self, unit: Unit, needed: Iterable[Unit]) -> None:
        """Moves ``unit`` after all of ``needed``, none of which may reach it."""
        low = self._rank[id(unit)]
        self._place(low, self._needed(needed, low + 1), unit)

    def merge(self, unit: Unit, merged: Unit) -> None:
        """Removes ``merged``, which is merged into ``unit``.  ``unit`` needed it, and so comes after it.

        No other unit that ``unit`` needs may reach ``merged``.
        """
        low, high = self._rank[id(merged)], self._rank[id(unit)]
        assert low < high
        self._units[low] = None
        del self._rank[id(merged)]
        self._place(low, self._needed(self._before(unit), low + 1), unit)

    def _needed(self, units: Iterable[Unit], low: int, until: Unit | None = None) -> dict[int, Unit]:
        """Returns, by rank, ``units`` and their needs with a rank of at least ``low``, until ``until`` is met."""
        by_rank: dict[int, Unit] = {}
        todo = list(units)
        while todo:
            unit = todo.pop()
            rank = self._rank[id(unit)]
            if rank >= low and rank not in by_rank:
                by_rank[rank] = unit
                if unit is until:
                    break
                todo.extend(self._before(unit))
        return by_rank

    def _place(self, low: int, first: Mapping[int, Unit], unit: Unit) -> None:
        """Puts the units of ``first``, by rank, and then ``unit`` at rank ``low`` and after; the others between move
        behind them.
        """
        high = max([*first, self._rank[id(unit)]])
        if not first and high == low:
            return
        last = [*(first[rank] for rank in sorted(first)), unit]
        moved = {id(u) for u in last}
        rest = [u for u in self._units[low : high + 1] if u is not None and id(u) not in moved]
        order = [*last, *rest]
        self._units[low : high + 1] = [*order, *[None] * (high + 1 - low - len(order))]
        self._rank |= {id(u): low + k for k, u in enumerate(order)}
