"""Computes the bytes that a placement keeps alive on each place, and finds a placement that fits if they are too
many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from keel.placement.solve.problem import FORBIDDEN, Ints, Problem, Terms

Placed = tuple[Ints, list[int]]
"""The backend of each bundle, and the group of each unit."""
_STEPS, _HALVINGS = 16, 6  # of the price: times four, then between two


def fit_budget(
    problem: Problem, terms: Terms, initial: Placed, solve: Callable[[Terms], Placed]
) -> tuple[Ints, dict[int, int]]:
    """Returns the backend of each bundle in a placement that fits into every place, if one is found, and the missing
    bytes.

    If a place is too small, each byte that units make there gets a price. The price rises until the placement that
    ``solve`` finds fits, and then falls as long as it fits: the same relaxation as for launches. The cheapest placement
    that fits is not always among those.
    """
    over = _over(problem, terms, initial)
    weight = _made_in(problem, terms, over)
    heaviest = int(weight.max(initial=0))
    if not heaviest:
        return initial[0], over

    def at(price: float) -> tuple[Placed, dict[int, int]]:
        charge = np.minimum(weight / heaviest * price, FORBIDDEN >> 1).astype(np.int64)
        dearer = np.where(terms.cost < FORBIDDEN, np.minimum(terms.cost + charge, FORBIDDEN - 1), FORBIDDEN)
        placed = solve(replace(terms, cost=dearer))
        return placed, _over(problem, terms, placed)

    candidates = [(initial, over)]
    low, high = 0.0, 1e3
    for _ in range(_STEPS):
        candidates.append(at(high))
        if not candidates[-1][1]:
            break
        low, high = high, high * 4
    else:
        (labels, _), over = min(candidates, key=lambda each: sum(each[1].values()))
        return labels, over
    (labels, _), over = candidates[-1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        placed, missing = at(middle)
        if missing:
            low = middle
        else:
            high, labels = middle, placed[0]
    return labels, over


def _over(problem: Problem, terms: Terms, placed: Placed) -> dict[int, int]:
    """The bytes by which places are too small."""
    if not np.isfinite(problem.memory).any():
        return {}
    used = peaks(problem, terms.bundle, placed)
    return {p: int(u - m) for p, (u, m) in enumerate(zip(used.tolist(), problem.memory.tolist(), strict=True)) if u > m}


def _made_in(problem: Problem, terms: Terms, places: Iterable[int]) -> Ints:
    """The bytes that each bundle makes on each backend of ``places``."""
    weight = np.zeros(terms.cost.shape, np.int64)
    made = problem.tensors.maker >= 0
    for b in np.nonzero(np.isin(problem.place, list(places)))[0]:
        np.add.at(weight[:, b], terms.bundle[problem.tensors.maker[made]], problem.tensors.size[made])
    return weight


def peaks(problem: Problem, bundle: Ints, placed: Placed) -> Ints:
    """The most bytes that are alive at once on each place.

    Units run group by group and in order within. On its maker's place a tensor is alive until all its readers have run;
    on another place it is alive from the first to the last reader there. Inputs of the graph are alive from the start,
    and tensors that must end on some place stay alive to the end.
    """
    labels, groups = placed
    t, units = problem.tensors, len(problem.compute)
    if not units:
        return np.zeros(len(problem.memory), np.int64)
    at = problem.place[labels[bundle]]
    position = np.empty(units, np.int64)
    position[np.lexsort((np.arange(units), np.asarray(groups)))] = np.arange(units)
    count, places = len(t.maker), len(problem.memory)
    made = t.maker >= 0
    source = np.where(made, at[t.maker], t.home)
    begin = np.where(made, position[t.maker], 0)
    star = np.repeat(np.arange(count), np.diff(t.first))
    first, last = np.full((count, places), units), np.full((count, places), -1)
    np.minimum.at(first, (star, at[t.reader]), position[t.reader])
    np.maximum.at(last, (star, at[t.reader]), position[t.reader])
    rows = np.arange(count)
    first[rows, source] = begin
    last[rows, source] = np.maximum(last.max(axis=1, initial=-1), begin)
    ending = rows[t.ends >= 0]
    first[ending, t.ends[ending]] = np.minimum(first[ending, t.ends[ending]], last[ending, source[ending]])
    last[ending, t.ends[ending]] = units - 1
    alive = np.zeros((units + 1, places), np.int64)
    which, where = np.nonzero(last >= 0)
    np.add.at(alive, (first[which, where], where), t.size[which])
    np.add.at(alive, (last[which, where] + 1, where), -t.size[which])
    return np.asarray(np.cumsum(alive, axis=0).max(axis=0))
