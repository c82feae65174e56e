"""What a placement costs and the best there is, straight from the definition: no code of the solvers is used.

Whole microseconds, plain Python.  The search tries every placement, but for those that begin with one which already
costs as much as one that is known: charges only add up.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from keel import placement


@dataclass(frozen=True)
class _Tensor:
    """One tensor: ``place`` is where each backend has it, ``ways`` what it costs from place to place."""

    maker: int
    readers: list[int]
    home: int
    ends: int
    handover: float
    ways: list[list[float]]
    place: list[int]


def _tensors(t: placement.Tensors, place: list[int]) -> list[_Tensor]:
    readers = [t.reader[a:b].tolist() for a, b in zip(t.first[:-1], t.first[1:], strict=True)]
    columns = zip(
        t.maker.tolist(), readers, t.home.tolist(), t.ends.tolist(), micros(t.handover), micros(t.transfer), strict=True
    )
    return [_Tensor(maker, read, home, ends, over, ways, place) for maker, read, home, ends, over, ways in columns]


@dataclass(frozen=True, eq=False)
class Oracle:
    """The costs of ``problem`` in microseconds, which they must be whole numbers of."""

    problem: placement.Problem
    launches: bool = True

    def cost(self, labels: Sequence[int]) -> float:
        """Returns the cost of one backend for each unit, with the cheapest parts if ``launches``; inf where a unit is
        refused.
        """
        total = sum(self.compute[u][b] for u, b in enumerate(labels)) - sum(worth for *_, worth in self.savings)
        total += sum(worth for units, b, worth in self.savings if any(labels[u] != b for u in units))
        total += sum(self._charge(t, labels) for t in range(len(self.tensors)))
        return total + (cheapest_parts(labels, self.problem.needs, self.launch) if self.launches else 0)

    def better(self, than: float) -> float:
        """The least cost of all placements, or ``than`` if none is cheaper."""
        units = len(self.compute)
        labels = [-1] * units
        rest = [0.0] * (units + 1)
        for u in reversed(range(units)):
            rest[u] = rest[u + 1] + min(self.compute[u])
        best = than

        def descend(u: int, spent: float, paid: tuple[float, ...], broken: frozenset[int]) -> None:
            nonlocal best
            if u == units:
                best = min(
                    best, spent + (cheapest_parts(labels, self.problem.needs, self.launch) if self.launches else 0)
                )
                return
            before = sum(self._charge(t, labels) for t in self.touching[u])
            candidates = []
            for b in self._possible(u, labels):
                labels[u] = b
                after = sum(self._charge(t, labels) for t in self.touching[u])
                lost = {i for i, (units_, owner, _) in enumerate(self.savings) if u in units_ and b != owner} - broken
                candidates.append(
                    (
                        spent + self.compute[u][b] + after - before + sum(self.savings[i][2] for i in lost),
                        b,
                        broken | lost,
                    )
                )
                labels[u] = -1
            for now, b, broken_then in sorted(candidates, key=lambda t: t[:2]):
                labels[u] = b
                path = (*paid, self._path(u, labels, paid)) if self.launches else paid
                if now + rest[u + 1] + self._least_launches(labels, path) < best:
                    descend(u + 1, now, path, broken_then)
                labels[u] = -1

        descend(0, -sum(worth for *_, worth in self.savings), (), frozenset())
        return best

    def _possible(self, u: int, labels: Sequence[int]) -> list[int]:
        fixed = [labels[v] for v in range(u) if self.together[v] == self.together[u]][:1]
        return fixed or [b for b, cost in enumerate(self.compute[u]) if cost < inf]

    def _charge(self, t: int, labels: Sequence[int]) -> float:
        """What tensor t costs by those units that have a backend."""
        it = self.tensors[t]
        if it.maker >= 0 and labels[it.maker] < 0:
            return 0
        source = it.place[labels[it.maker]] if it.maker >= 0 else it.home
        owners = {labels[r] for r in it.readers if labels[r] >= 0}
        places = {it.place[b] for b in owners} | ({it.ends} if it.ends >= 0 else set())
        moved = sum(it.ways[source][q] for q in places - {source})
        return moved + (it.handover * len(owners - {labels[it.maker]}) if it.maker >= 0 else 0)

    def _path(self, u: int, labels: Sequence[int], paid: tuple[float, ...]) -> float:
        """What parts on the dearest path to u cost."""
        own = self.launch[labels[u]]
        return max((paid[v] + (own if labels[v] != labels[u] else 0) for v in self.problem.needs[u]), default=own)

    def _least_launches(self, labels: Sequence[int], paid: tuple[float, ...]) -> float:
        """What the parts of those units that have a backend cost at least: those on a path, and one of each owner."""
        return max((*paid, sum(self.launch[b] for b in set(labels) if b >= 0))) if self.launches else 0

    @cached_property
    def compute(self) -> list[list[float]]:
        compute: list[list[float]] = micros(self.problem.compute)
        return compute

    @cached_property
    def launch(self) -> list[float]:
        launch: list[float] = micros(self.problem.launch)
        return launch

    @cached_property
    def together(self) -> list[int]:
        together: list[int] = self.problem.together.tolist()
        return together

    @cached_property
    def tensors(self) -> list[_Tensor]:
        """Those between places, then those between backends."""
        p = self.problem
        between = [] if p.passed is None else _tensors(p.passed, list(range(p.backends)))
        return [*_tensors(p.tensors, p.place.tolist()), *between]

    @cached_property
    def savings(self) -> list[tuple[tuple[int, ...], int, float]]:
        return [(s.units, s.backend, round(s.seconds * 1e6)) for s in self.problem.savings]

    @cached_property
    def touching(self) -> list[list[int]]:
        """For each unit the tensors that it makes or reads."""
        results: list[list[int]] = [[] for _ in self.compute]
        for t, it in enumerate(self.tensors):
            for u in {it.maker, *it.readers} - {-1}:
                results[u].append(t)
        return results


def micros(seconds: np.ndarray) -> Any:
    """Nested lists of whole numbers, and inf."""
    return np.rint(np.asarray(seconds) * 1e6).tolist()


def cheapest_parts(labels: Sequence[int], needs: Sequence[Sequence[int]], launch: Sequence[float]) -> float:
    """What the cheapest row of convex parts costs: a shortest path over what has already run (Dijkstra 1959).

    A part that takes all of its backend that can run leaves no more to do than one that takes less.
    """
    needed = [sum(1 << u for u in producers) for producers in needs]
    all_of_them = (1 << len(needs)) - 1
    best: dict[tuple[int, int], float] = {(0, -1): 0}
    queue: list[tuple[float, int, int]] = [(0, 0, -1)]
    while True:
        cost, done, last = heapq.heappop(queue)
        if done == all_of_them:
            return cost
        for b in sorted(set(labels) - {last}):
            now = done
            for v in range(len(needs)):  # in order, so that one sweep reaches all of them
                if labels[v] == b and not needed[v] & ~now:
                    now |= 1 << v
            if now != done and cost + launch[b] < best.get((now, b), inf):
                best[now, b] = cost + launch[b]
                heapq.heappush(queue, (cost + launch[b], now, b))


def fewest_parts(labels: Sequence[int], needs: Sequence[Sequence[int]]) -> int:
    return int(cheapest_parts(labels, needs, [1] * (max(labels, default=0) + 1)))
