"""Finds a placement with its whole cost (backends, parts, launches, memory) and a bound that shows how good it is.

A cut cannot express launches: their number is the number of parts, which is the most changes of backend on any path.
But a cut can express the changes on one path, and any average over paths. Such a price on edges bounds the launches of
every placement from below (Lagrangian duality: Geoffrion 1974), and the best placement under it is one to try. Prices
follow the paths on which the placements found so far change most; each round adds one path (the subgradient method:
Shor 1985).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from keel.placement.cluster import Users, cluster_in_one, owners, users_of
from keel.placement.solve.alpha_expansion import bound, expand_moves
from keel.placement.solve.ilp import lp_bound, solve_ilp
from keel.placement.solve.memory_budget import fit_budget
from keel.placement.solve.problem import (
    FORBIDDEN,
    Ints,
    Problem,
    Saving,
    Stars,
    Terms,
    contracted,
    scaled,
    value,
)

ROUNDS = ((1_000, 16), (5_000, 6), (20_000, 3), (1 << 62, 1))
"""By the number of units: how many paths launches are priced on, and how often whole parts change their backend at
most."""
PATIENCE = 3
"""The number of paths in a row, without a better placement or a bound better by a thousandth, after which the search
ends."""
NEAR = 10
"""The search ends at a placement that is above its bound by less than ``2**-NEAR`` of its cost."""
LINEAR = 300
"""The most bundles for which the bound for three and more backends comes from a linear program."""


@dataclass(frozen=True, eq=False)
class SolvedPlacement:
    """``backend[u]`` and ``group[u]`` of each unit; groups are parts in an order in which they can run.

    ``seconds`` is the total cost: ``work`` of the units, ``moves`` between places and backends less what patterns save,
    and ``launches`` of the parts. No placement costs less than ``bound``. ``over`` has the bytes by which places are
    too small for it. ``tick`` is the unit, in seconds, that each price was rounded to.
    """

    backend: Ints
    group: tuple[int, ...]
    work: float
    moves: float
    launches: float
    bound: float
    over: dict[int, int]
    tick: float = 1e-12

    @property
    def seconds(self) -> float:
        return self.work + self.moves + self.launches

    @property
    def gap(self) -> float:
        """The fraction of the cost by which it may be above the optimum."""
        return max(0.0, 1 - self.bound / self.seconds) if self.seconds > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Order:
    """The needs and users of each unit, and the savings in one part, by their index among all savings."""

    needs: Sequence[Sequence[int]]
    users: Users
    in_one: Mapping[int, Saving] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.needs)


@dataclass(frozen=True, eq=False)
class _Candidate:
    labels: Ints
    groups: list[int]
    ticks: int
    launches: int


def solve_placement(problem: Problem, *, exact: bool = False) -> SolvedPlacement:
    """Places every unit.  The same problem always gets the same placement.

    For two backends without launch costs the placement is optimal, in the fewest parts. Otherwise it is the best one
    found on the way to ``bound``; ``exact`` finds the optimum by integer programming, for a few dozen units. If places
    have limits, a price per byte is added there until the tensors alive at once fit; ``over`` is not empty if no
    placement that fits was found.
    """
    terms = scaled(problem)
    in_one = {i: s for i, s in enumerate(problem.savings) if s.in_one_part}
    order = _Order(problem.needs, users_of(problem.needs), in_one)

    def again(dearer: Terms) -> tuple[Ints, list[int]]:
        placed, _ = _joint(dearer, order, False)
        return placed.labels, placed.groups

    best, floor = _joint(terms, order, exact)
    labels, over = fit_budget(problem, terms, (best.labels, best.groups), again)
    if labels is not best.labels:
        best = _parted(terms, order, labels)
    work = int(terms.cost[np.arange(len(labels)), labels].sum())
    return SolvedPlacement(
        labels[terms.bundle],
        tuple(best.groups),
        work * terms.tick,
        (best.ticks - best.launches - work) * terms.tick,
        best.launches * terms.tick,
        min(floor, best.ticks) * terms.tick,
        over,
        terms.tick,
    )


def _joint(terms: Terms, order: _Order, exact: bool) -> tuple[_Candidate, int]:
    """The best placement found, and a bound in ticks."""
    best = _parted(terms, order, expand_moves(terms))
    if ((terms.cost < FORBIDDEN).sum(axis=1) == 1).all() and len(np.unique(best.labels)) <= 2:
        return best, best.ticks  # there is only one backend
    least = bound(terms) if terms.backends > 2 else value(terms, best.labels)
    if terms.backends > 2 and len(terms.cost) <= LINEAR and best.ticks - best.launches > least:
        least = max(least, lp_bound(terms))
    if not len(terms.cost):
        return best, least
    if terms.launch.any():
        least += int(terms.launch.min())
        best, least = _with_launches(terms, order, best, least)
    if exact and best.ticks > least:
        best = _exactly(terms, order, best, least)
        least = best.ticks
    return best, least


def _with_launches(terms: Terms, order: _Order, best: _Candidate, least: int) -> tuple[_Candidate, int]:
    rounds = next(r for size, r in ROUNDS if len(order) <= size)
    last = best
    if rounds > 1:
        best = _merged(terms, order, best)
    passed: Counter[tuple[int, int]] = Counter()
    idle = 0
    for r in range(1, rounds + 1):
        before = best.ticks, least
        passed.update(_dearest_path(terms, order, last))
        priced = _on_paths(terms, passed, r)
        last = _parted(terms, order, expand_moves(priced, best.labels))
        least = max(least, value(priced, last.labels) if terms.backends == 2 else bound(priced))
        better = min(best, last, key=lambda f: f.ticks) if rounds == 1 else last
        best = min(best, _merged(terms, order, better), key=lambda f: f.ticks)
        idle = 0 if best.ticks < before[0] or least - before[1] > least >> 10 else idle + 1
        if best.ticks - least <= abs(best.ticks) >> NEAR or idle == PATIENCE:
            break
    return best, least


def _parted(terms: Terms, order: _Order, labels: Ints) -> _Candidate:
    colors = labels[terms.bundle].tolist()
    launch = terms.launch.tolist()
    complete = [i for i, s in order.in_one.items() if all(colors[u] == s.backend for u in s.units)]
    sets = [order.in_one[i].units for i in complete]
    groups, split = cluster_in_one(colors, order.needs, sets, launch, order.users)
    launches = sum(launch[c] for c in owners(groups, colors))
    lost = sum(int(terms.wholes.worth[complete[k]]) for k in split)
    return _Candidate(labels, groups, value(terms, labels) + lost + launches, launches)


def _dearest_path(terms: Terms, order: _Order, candidate: _Candidate) -> list[tuple[int, int]]:
    """Returns the edges of a path on which a placement pays the most launches; the first edge comes from -1."""
    colors, launch = candidate.labels[terms.bundle].tolist(), terms.launch.tolist()
    paid = [launch[c] for c in colors]
    came = [-1] * len(order)
    for v, needs in enumerate(order.needs):
        c, most = colors[v], paid[v]
        for u in needs:
            if (now := paid[u] + (launch[c] if colors[u] != c else 0)) >= most:
                most, came[v] = now, u
        paid[v] = most
    v = max(range(len(paid)), key=paid.__getitem__)
    path = []
    while v >= 0:
        path.append((came[v], v))
        v = came[v]
    return path


def _on_paths(terms: Terms, passed: Counter[tuple[int, int]], rounds: int) -> Terms:
    """Adds the launches of the average of ``rounds`` paths to the terms, as prices on edges and first units.

    Prices are rounded down, so that a placement pays at most as much for them as for its parts.
    """
    first = [(v, n) for (u, v), n in passed.items() if u < 0]
    cost = terms.cost.copy()
    for v, n in first:
        cost[terms.bundle[v]] += terms.launch * n // rounds
    edges = np.array([(u, v, n) for (u, v), n in passed.items() if u >= 0], np.int64).reshape(-1, 3)
    price = terms.launch[None] * edges[:, 2:] // rounds
    return replace(
        terms,
        cost=np.minimum(cost, FORBIDDEN),
        stars=(*terms.stars, _links(terms.bundle[edges[:, 0]], terms.bundle[edges[:, 1]], price)),
    )


def _links(makers: Ints, readers: Ints, price: Ints) -> Stars:
    """Adds a charge of ``price[i, b]`` if reader i is on backend b and maker i on another."""
    other = makers != readers
    makers, readers, price = makers[other], readers[other], price[other]
    count, backends = len(makers), price.shape[1]
    nowhere = np.full(count, -1)
    return Stars(
        np.arange(backends),
        makers,
        np.arange(count),
        readers,
        price[:, None, :] * ~np.eye(backends, dtype=bool),
        nowhere,
        nowhere,
    )


def _merged(terms: Terms, order: _Order, best: _Candidate) -> _Candidate:
    """Moves whole parts to other backends as long as that helps. For two backends the best set of parts moves at once:
    parts in a row that change their backend cost a launch each, which is a cut again.
    """
    for _ in range(next(r for size, r in ROUNDS if len(order) <= size)):
        into = _together(best.groups, terms.bundle, len(terms.cost))
        coarse = contracted(terms, into)
        part = np.zeros(max(best.groups) + 1, np.int64)
        part[best.groups] = into[terms.bundle]
        cost = coarse.cost.copy()
        cost[part[0]] += terms.launch
        price = np.broadcast_to(terms.launch, (len(part) - 1, terms.backends))
        coarse = replace(
            coarse, cost=np.minimum(cost, FORBIDDEN), stars=(*coarse.stars, _links(part[:-1], part[1:], price))
        )
        start = np.zeros(len(coarse.cost), np.int64)
        start[into] = best.labels
        now = _parted(terms, order, expand_moves(coarse, start)[into])
        if now.ticks >= best.ticks:
            return best
        best = now
    return best


def _together(groups: Sequence[int], bundle: Ints, bundles: int) -> Ints:
    """Returns the number of the set of each bundle, if neither groups nor bundles may be divided."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = bundles + max(groups) + 1
    links = coo_array((np.ones(len(groups), np.int8), (bundle, np.asarray(groups) + bundles)), shape=(count, count))
    numbers = connected_components(links, directed=False)[1][:bundles]
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64)


def _exactly(terms: Terms, order: _Order, best: _Candidate, least: int) -> _Candidate:
    """Returns the optimum.  The gap between ``best`` and the bound limits its number of parts."""
    cheapest = int(terms.launch.min())
    spare = best.ticks - least + cheapest
    most = min(len(order), spare // cheapest) if cheapest else len(order)
    most = max(most, len(set(best.groups))) if not cheapest else most
    labels = solve_ilp(terms, order.needs, max(1, int(most)))
    return best if labels is None else min(best, _parted(terms, order, labels), key=lambda f: f.ticks)
