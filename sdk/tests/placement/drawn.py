"""Random placement problems, and the best placements there are, by trying all."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence

import numpy as np

from keel.placement.solve.problem import FORBIDDEN, Problem, Saving, Tensors, Terms, problem, tensors, value

US = 1e-6
"""Costs are whole microseconds, so that ticks hold them without rounding."""


def drawn(seed: int, units: int, backends: int, *, metric: bool = False) -> Problem:
    """A problem of every regime: ties, zeros, refusals, tensors from and to places, several readers, backends of one
    place, units that stay together, patterns.  ``metric``: transfers obey the triangle inequality, as routed copies do.
    """
    r = random.Random(seed)
    top = r.choice((3, 5, 100, 1000))
    needs = [sorted(r.sample(range(v), min(v, r.choice((0, 1, 1, 2, 3))))) for v in range(units)]
    compute = np.array([[r.randint(0, top) for _ in range(backends)] for _ in range(units)], float) * US
    for u, b in itertools.product(range(units), range(backends)):
        if r.random() < 0.15 and np.isfinite(np.delete(compute[u], b)).any():
            compute[u, b] = np.inf
    places = r.choice((backends, backends, max(1, backends - 1)))
    readers = [[v for v, wanted in enumerate(needs) if u in wanted] for u in range(units)]
    given = [sorted(r.sample(range(units), r.randint(1, min(3, units)))) for _ in range(r.randint(0, 3))]
    count = units + len(given)
    ways = np.array(
        [[[r.randint(0, top // 2 + 1) for _ in range(places)] for _ in range(places)] for _ in range(count)], float
    ).reshape(count, places, places)
    if metric:
        for p in range(places):
            ways = np.minimum(ways, ways[:, :, p : p + 1] + ways[:, p : p + 1])
    moved = tensors(
        [*range(units), *[-1] * len(given)],
        [*readers, *given],
        ways * US,
        home=[*[-1] * units, *(r.randrange(places) for _ in given)],
        ends=[*(r.choice((-1, -1, -1, r.randrange(places))) for _ in range(units)), *[-1] * len(given)],
        handover=[r.choice((0, 0, r.randint(0, top // 3 + 1))) * US for _ in range(count)],
    )
    together = list(range(units))
    a, b = r.randrange(units), r.randrange(units)
    if r.random() < 0.4 and np.isfinite(compute[a] + compute[b]).any():
        together[a] = together[b]
    savings = [
        Saving(tuple(r.sample(range(units), 2)), r.randrange(backends), r.randint(0, top) * US)
        for _ in range(units > 1 and r.random() < 0.4)
    ]
    return problem(
        compute,
        needs,
        moved,
        place=[b if b < places else r.randrange(places) for b in range(backends)],
        launch=[r.randint(0, top) * US for _ in range(backends)],
        together=together,
        savings=savings,
        passed=_passed(random.Random(seed + 1), readers, backends, top),
    )


def _passed(r: random.Random, readers: Sequence[Sequence[int]], backends: int, top: int) -> Tensors | None:
    """Charges between backends, for one problem in three: on tensors of units, and of memory."""
    if r.random() > 1 / 3:
        return None
    count, places = len(readers), backends + 1
    ways = np.array(
        [[[r.randint(0, top // 2 + 1) for _ in range(places)] for _ in range(places)] for _ in range(count)], float
    ).reshape(count, places, places)
    maker = [r.choice((u, -1)) for u in range(count)]
    return tensors(maker, readers, ways * US, home=[-1 if m >= 0 else backends for m in maker])


def best_labels(terms: Terms) -> tuple[int, list[tuple[int, ...]]]:
    """The least ticks without launches, and all placements of bundles that cost it."""
    takers = [[b for b in range(terms.backends) if ticks[b] < FORBIDDEN] for ticks in terms.cost.tolist()]
    costs = {labels: value(terms, np.array(labels, np.int64)) for labels in itertools.product(*takers)}
    least = min(costs.values())
    return least, [labels for labels, cost in costs.items() if cost == least]


def best_with_launches(terms: Terms, needs: Sequence[Sequence[int]]) -> int:
    """The least ticks with launches."""
    takers = [[b for b in range(terms.backends) if ticks[b] < FORBIDDEN] for ticks in terms.cost.tolist()]
    least = 1 << 62
    for labels in itertools.product(*takers):
        cost = value(terms, np.array(labels, np.int64))
        if cost < least:
            least = min(least, cost + cheapest_parts([labels[v] for v in terms.bundle], needs, terms.launch.tolist()))
    return least


def cheapest_parts(colors: Sequence[int], needs: Sequence[Sequence[int]], launch: Sequence[int]) -> int:
    """What the cheapest row of convex groups costs: a shortest path over what has already run (Dijkstra 1959)."""
    needed = [sum(1 << u for u in wanted) for wanted in needs]
    best, queue = {(0, -1): 0}, [(0, 0, -1)]
    while queue:
        cost, done, last = heapq.heappop(queue)
        if done == (1 << len(needs)) - 1:
            return cost
        for c in sorted(set(colors) - {last}):
            now = done
            for v in range(len(needs)):  # in order, so that one sweep reaches all of them
                if colors[v] == c and not needed[v] & ~now:
                    now |= 1 << v
            if now != done and cost + launch[c] < best.get((now, c), 1 << 62):
                best[now, c] = cost + launch[c]
                heapq.heappush(queue, (cost + launch[c], now, c))
    raise AssertionError("some unit needs a later one")
