"""Chooses a backend for each bundle without launches: the optimum for two places, a good placement and a bound for
more.

The method is alpha-expansion (Boykov, Veksler, Zabih 2001, "Fast approximate energy minimization via graph cuts"). As
long as it helps, the best set of bundles moves to one backend; a minimum cut finds that set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from keel.placement.solve.min_cut import best_mix_of_two
from keel.placement.solve.problem import FORBIDDEN, Ints, Stars, Terms, Wholes, value

ROUNDS = 12
"""How often every backend is offered to all bundles at most; two to four times are typical."""
ENOUGH = 17
"""Expansions that gain less than ``2**-ENOUGH`` of the cost are ignored. The threshold is sixteen times higher for more
than LARGE bundles."""
LARGE = 20_000


def expand_moves(terms: Terms, start: Ints | None = None) -> Ints:
    """The backend of each bundle.

    Exact for two backends. Exact for any number of backends on one or two places if there are no savings and no charges
    between backends of one place. Otherwise no expansion improves the result by more than 1/131,072 of its cost
    (1/8,192 for large graphs). The result is never more expensive than any of these: the cheapest backend for each
    bundle alone; each single backend (with the calls that it refuses on the cheapest other); the best mixture of each
    two of those.

    If all ways of a tensor cost the same, the result costs at most 2(p - 1) times the optimum for p places, and 2 times
    if each tensor has one reader. (Section 6 of the paper: for a tensor whose place the optimum changes, each of two
    expansions pays for at most p - 1 places, and the optimum for at least one.) ``bound`` certifies more than that.
    """
    offers = list(_offers(terms))
    if start is None or len(offers) == 2:
        start = _first(terms, offers)
    if len(offers) <= 2:
        return start
    enough = ENOUGH if len(terms.cost) <= LARGE else ENOUGH - 4
    best, cost, idle, lean = start, value(terms, start), 0, False
    for turn in range(ROUNDS * len(offers)):
        offer = offers[turn % len(offers)]
        labels = best_mix_of_two(terms, best, np.where(_accepted(terms, offer), offer, best), lean=lean)
        now = value(terms, labels)
        idle = 0 if (cost - now) << enough > abs(cost) else idle + 1
        if now < cost:
            best, cost = labels, now
        if idle == 2 * len(offers) or (idle == len(offers) and not _wavering(terms)):
            break
        lean ^= idle == len(offers)
    return best


def bound(terms: Terms) -> int:
    """Returns a lower bound, in ticks, of every placement without launches.

    Divide the backends into two sides. A placement costs at least as much as if each bundle were on the cheapest
    backend of its side, moves within a side were free, and moves between sides cost as little as the cheapest one. The
    best two-sided placement under these prices is a minimum cut. The bound is the best one over all divisions of one
    place or backend against the others. It is the optimum for two backends.
    """
    alone = int(terms.cost.min(axis=1, initial=FORBIDDEN).sum()) - terms.credit
    return max([alone, *(_sided(terms, side) for side in _sides(terms))])


def _offers(terms: Terms) -> Iterator[Ints]:
    """Yields the offers made to bundles: each backend, then the cheapest backend of each place that has several.

    If there are no charges between backends of one place, only places are offered.
    """
    place = terms.stars[0].place
    several = len(np.unique(place)) < terms.backends
    plain = not len(terms.wholes.backend) and all(np.array_equal(s.place, place) for s in terms.stars)
    bundles = len(terms.cost)
    if terms.backends == 2:
        several = False
    for backend in range(terms.backends) if not (several and plain) else ():
        yield np.full(bundles, backend)
    for p in np.unique(place) if several else ():
        own = np.nonzero(place == p)[0]
        if len(own) > 1 or plain:
            yield own[np.argmin(terms.cost[:, own], axis=1)]


def _accepted(terms: Terms, offer: Ints) -> Ints:
    return np.asarray(terms.cost[np.arange(len(offer)), offer] < FORBIDDEN)


def _first(terms: Terms, offers: Sequence[Ints]) -> Ints:
    """Returns the best of these: each bundle on its cheapest backend, each offer alone, and the best mixture of two
    offers.
    """
    cheapest = np.argmin(terms.cost, axis=1)
    accepted = [_accepted(terms, offer) for offer in offers]
    starts = [np.where(accepted[i], offers[i], cheapest) for i in range(len(offers))]
    for i in range(len(offers)):
        for j in range(i + 1, len(offers)):
            low = np.where(accepted[i], offers[i], np.where(accepted[j], offers[j], cheapest))
            high = np.where(accepted[j], offers[j], low)
            starts.append(best_mix_of_two(terms, low, high))
    if len(offers) == 2:
        return starts[-1]
    return min([*starts, cheapest], key=lambda labels: value(terms, labels))


def _wavering(terms: Terms) -> bool:
    """True if expansions are not exact, because ways of a tensor have different prices. Then ``lean`` ones may find
    more.
    """
    for s in terms.stars:
        places = s.price.shape[1]
        if places > 2 and len(s.price):
            distinct = ~np.eye(places, dtype=bool)
            if (s.price[:, distinct].max(axis=1) > s.price[:, distinct].min(axis=1)).any():
                return True
    return len(terms.wholes.backend) > 0


def _sides(terms: Terms) -> list[Ints]:
    """Returns the divisions of backends as masks of one side: those of each place, and each backend alone; each
    once.
    """
    place = terms.stars[0].place
    masks = [*(place == p for p in np.unique(place)), *np.eye(terms.backends, dtype=bool)]
    once = {tuple(m if m[0] else ~m): m if m[0] else ~m for m in masks if not m.all()}
    return list(once.values())


def _sided(terms: Terms, side: Ints) -> int:
    """The bound of one split: ``side`` are the backends of the one side."""
    cost = np.stack([terms.cost[:, side].min(axis=1), terms.cost[:, ~side].min(axis=1)], axis=1)
    w = terms.wholes
    wholes = Wholes(w.which, w.member, np.where(side[w.backend], 0, 1), w.worth)
    two = replace(terms, cost=cost, wholes=wholes, stars=tuple(_folded(s, side) for s in terms.stars))
    low, high = (np.where(cost[:, b] < FORBIDDEN, b, 1 - b) for b in (0, 1))
    return value(two, best_mix_of_two(two, low, high))


def _folded(stars: Stars, side: Ints) -> Stars:
    """Returns the charges between two sides of backends, 0 and 1.  Tensors that start or end on neither side are on 2.

    If a place has backends on both sides, nothing is charged.
    """
    places = stars.price.shape[1]
    sides = np.full(places, 2)
    sides[stars.place[side]], sides[stars.place[~side]] = 0, 1
    if set(stars.place[side]) & set(stars.place[~side]):
        return replace(
            stars,
            price=np.zeros((len(stars.price), 3, 3), np.int64),
            place=np.arange(2),
            home=np.full_like(stars.home, 2),
            ends=np.full_like(stars.ends, -1),
        )
    price = np.zeros((len(stars.price), 3, 3), np.int64)
    homed = stars.maker < 0
    rows = np.nonzero(homed)[0]
    for p in range(3):
        for q in range(3):
            if p == q or not ((sides == p).any() and (sides == q).any()):
                continue
            ways = stars.price[:, sides == p][:, :, sides == q]
            price[:, p, q] = ways.min(axis=(1, 2))
            exact = rows[sides[stars.home[rows]] == p]
            price[exact, p, q] = stars.price[exact, stars.home[exact]][:, sides == q].min(axis=1)
    ending = stars.ends >= 0
    return Stars(
        np.arange(2),
        stars.maker,
        stars.star,
        stars.reader,
        price,
        np.where(homed, sides[np.maximum(stars.home, 0)], -1),
        np.where(ending, sides[np.maximum(stars.ends, 0)], -1),
    )
