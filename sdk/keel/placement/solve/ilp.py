"""The optimum with launches, by integer programming.

It is the reference for the fast method on graphs of a few dozen units. Its linear relaxation gives a bound for graphs
of a few thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keel.placement.solve.problem import FORBIDDEN, Ints, Stars, Terms


@dataclass
class _Program:
    """A linear program under construction: columns with a price and an upper bound, and rows of entries."""

    prices: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    integrality: list[int] = field(default_factory=list)
    rows: list[tuple[Sequence[int], Sequence[float], float, float]] = field(default_factory=list)

    def column(self, price: float = 0.0, most: float = 1.0, integral: bool = False) -> int:
        self.prices.append(price)
        self.most.append(most)
        self.integrality.append(int(integral))
        return len(self.prices) - 1

    def row(self, columns: Sequence[int], factors: Sequence[float], low: float, high: float) -> None:
        self.rows.append((columns, factors, low, high))

    def solved(self, integral: bool) -> Any:
        """HiGHS's answer (Huangfu, Hall 2018), to optimality."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        first = np.cumsum([0, *(len(columns) for columns, *_ in self.rows)])
        entries = (
            np.array([f for _, factors, *_ in self.rows for f in factors], float),
            np.array([c for columns, *_ in self.rows for c in columns], np.int32),
            first.astype(np.int32),
        )
        matrix = csr_array(entries, shape=(len(self.rows), len(self.prices)))
        limits = LinearConstraint(matrix, [low for *_, low, _ in self.rows], [high for *_, high in self.rows])
        return milp(
            self.prices,
            integrality=self.integrality if integral else None,
            bounds=Bounds(0, self.most),
            constraints=limits,
            options={"mip_rel_gap": 0.0},
        )


def solve_ilp(terms: Terms, needs: Sequence[Sequence[int]], most: int) -> Ints | None:
    """The backend of each bundle in a placement of least cost with launches, of those with at most ``most`` parts.

    Exact but for the solver's tolerance, a millionth of the cost.  None where there is no such placement.  Takes
    seconds at 20 units and exponential time beyond; without launch costs graphs of hundreds of units are in reach.
    """
    scale = _scale(terms)
    program = _Program()
    at = _assignment(program, terms, scale)
    if terms.launch.any():
        _parts(program, terms, needs, at, most, scale)
    answer = program.solved(True)
    if answer.x is None:
        return None
    return np.asarray(np.argmax(np.where(at >= 0, answer.x[at], -1.0), axis=1), np.int64)


def lp_bound(terms: Terms) -> int:
    """Returns a lower bound, in ticks, of every placement without launches: the value of the linear relaxation, less a
    millionth for the solver's tolerance.
    """
    scale = _scale(terms)
    program = _Program()
    _assignment(program, terms, scale)
    answer = program.solved(False)
    if answer.fun is None:
        return -terms.credit
    return int((answer.fun - 1e-6 * (abs(answer.fun) + 1)) / scale) - terms.credit


def _scale(terms: Terms) -> float:
    """The factor that scales prices to the solver's tolerances: the most expensive bundle costs 1,000."""
    top = max(
        (
            int(terms.cost[terms.cost < FORBIDDEN].max(initial=1)),
            *(int(s.price[s.price < FORBIDDEN].max(initial=1)) for s in terms.stars),
        )
    )
    return 1e3 / max(top, 1)


def _assignment(program: _Program, terms: Terms, scale: float) -> Ints:
    """Columns for each bundle on each backend (-1 where refused), and all charges."""
    at = np.full(terms.cost.shape, -1, np.int64)
    for v, costs in enumerate(terms.cost.tolist()):
        for b, ticks in enumerate(costs):
            if ticks < FORBIDDEN:
                at[v, b] = program.column(ticks * scale, integral=True)
        own = [int(c) for c in at[v] if c >= 0]
        program.row(own, [1.0] * len(own), 1, 1)
    for stars in terms.stars:
        _ways(program, stars, at, scale)
    w = terms.wholes
    for i, (backend, worth) in enumerate(zip(w.backend.tolist(), w.worth.tolist(), strict=True)):
        broken = program.column(worth * scale)
        for v in w.member[w.which == i].tolist():
            column = int(at[v, backend])
            program.row([broken] if column < 0 else [broken, column], [1.0] if column < 0 else [1.0, 1.0], 1, np.inf)
    return at


def _ways(program: _Program, stars: Stars, at: Ints, scale: float) -> None:
    """Adds columns for tensor t and place q: whether a reader is there, and from which place the tensor comes. A way is
    used only if the maker is on its place, and as many ways are used as readers ask for (the local polytope, except for
    several readers).
    """
    places = range(stars.price.shape[1])
    readers = (
        np.split(stars.reader, np.cumsum(np.bincount(stars.star, minlength=len(stars.maker)))[:-1])
        if len(stars.maker)
        else []
    )
    for t in range(len(stars.maker)):
        maker, ends, prices = int(stars.maker[t]), int(stars.ends[t]), stars.price[t].tolist()
        for q in places:
            ways = [_on(at, stars, v, q) for v in readers[t].tolist()]
            ways = [own for own in ways if own]
            if not ways and ends != q:
                continue
            come = [
                (p, program.column(min(prices[p][q], FORBIDDEN) * scale, 0.0 if prices[p][q] >= FORBIDDEN else np.inf))
                for p in places
            ]
            columns = [c for _, c in come]
            for own in ways:
                program.row([*columns, *own], [1.0] * len(columns) + [-1.0] * len(own), 0, np.inf)
            if ends == q:
                program.row(columns, [1.0] * len(columns), 1, np.inf)
            for p, column in come:
                if maker < 0:
                    program.row([column], [1.0], 0, float(p == stars.home[t]))
                else:
                    own = _on(at, stars, maker, p)
                    program.row([column, *own], [1.0] + [-1.0] * len(own), -np.inf, 0)


def _on(at: Ints, stars: Stars, bundle: int, place: int) -> list[int]:
    """Returns the columns that state that a bundle is on a place."""
    return [int(c) for c in at[bundle, stars.place == place] if c >= 0]


def _parts(program: _Program, terms: Terms, needs: Sequence[Sequence[int]], at: Ints, most: int, scale: float) -> None:
    """Adds a sequence of parts, each with one backend or unused. Units are in parts of their backend, and no unit runs
    before the units that it needs.

    ``by[u][g]`` says that unit u is in part g or in an earlier one.
    """
    owner = [
        [program.column(int(terms.launch[b]) * scale, integral=True) for b in range(terms.backends)]
        for _ in range(most)
    ]
    for own in owner:
        program.row(own, [1.0] * len(own), 0, 1)
    by = [[program.column(integral=True) for _ in range(most)] for _ in needs]
    for u, needed in enumerate(needs):
        program.row([by[u][-1]], [1.0], 1, 1)
        for g in range(most):
            if g:
                program.row([by[u][g], by[u][g - 1]], [1.0, -1.0], 0, np.inf)
            for v in needed:
                program.row([by[v][g], by[u][g]], [1.0, -1.0], 0, np.inf)
            for b in range(terms.backends):  # a unit in part g and on b: then g belongs to b
                column = int(at[terms.bundle[u], b])
                if column >= 0:
                    before = [by[u][g - 1]] if g else []
                    program.row(
                        [owner[g][b], column, by[u][g], *before], [1.0, -1.0, -1.0] + [1.0] * len(before), -1, np.inf
                    )
