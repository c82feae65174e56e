"""Placement problems as a Hypothesis strategy, so that one that fails is shown as small as it gets."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from keel.placement.solve.problem import Problem, Saving, Tensors, problem, tensors

from .drawn import US


@st.composite
def problems(draw: st.DrawFn, backends: int, most: int, *, launches: bool = False, uniform: bool = False) -> Problem:
    """A problem of one to ``most`` units: refusals, ties, tensors with several readers, with homes and ends, backends
    of one place, units that stay together, patterns.  Costs are whole microseconds.

    ``uniform``: all ways of a tensor cost the same, for which the method for three and more backends has a bound, and
    there are no patterns, to which that does not extend.
    """
    price = st.integers(0, 9)
    units = draw(st.integers(1, most))
    needs = [sorted(draw(st.sets(st.integers(0, v - 1), max_size=3))) if v else [] for v in range(units)]
    rows = draw(st.lists(st.lists(price, min_size=backends, max_size=backends), min_size=units, max_size=units))
    compute = np.array(rows, float) * US
    for u, b in draw(st.sets(st.tuples(st.integers(0, units - 1), st.integers(0, backends - 1)), max_size=3)):
        if np.isfinite(np.delete(compute[u], b)).any():
            compute[u, b] = np.inf
    place = list(range(backends)) if uniform else [0, *(draw(st.integers(0, b)) for b in range(1, backends))]
    places = sorted(set(place))
    place = [places.index(p) for p in place]
    together = list(range(units))
    a, b = draw(st.tuples(st.integers(0, units - 1), st.integers(0, units - 1)))
    if np.isfinite(compute[a] + compute[b]).any():
        together[a] = together[b]
    pairs = st.sets(st.integers(0, units - 1), min_size=2, max_size=3)
    savings = [
        Saving(tuple(sorted(draw(pairs))), draw(st.integers(0, backends - 1)), draw(price) * US)
        for _ in range(0 if uniform or units < 2 else draw(st.integers(0, 2)))
    ]
    moved = _moved(draw, needs, len(places), uniform)
    return problem(
        compute,
        needs,
        moved,
        place=place,
        together=together,
        savings=savings,
        launch=[draw(price) * US if launches else 0.0 for _ in range(backends)],
    )


def _moved(draw: st.DrawFn, needs: list[list[int]], places: int, uniform: bool) -> Tensors:
    """What units make for others, and up to two tensors that lie somewhere from the start."""
    units, price = len(needs), st.integers(0, 9)
    readers = [[v for v, wanted in enumerate(needs) if u in wanted] for u in range(units)]
    given = draw(st.lists(st.sets(st.integers(0, units - 1), min_size=1, max_size=3), max_size=2))
    count = units + len(given)
    if uniform:
        ways = np.array(draw(st.lists(price, min_size=count, max_size=count)), float)[:, None, None]
        ways = ways * (1 - np.eye(places))
    else:
        flat = draw(st.lists(price, min_size=count * places * places, max_size=count * places * places))
        ways = np.array(flat, float).reshape(count, places, places)
    anywhere = st.integers(-1, places - 1)
    return tensors(
        [*range(units), *[-1] * len(given)],
        [*readers, *map(sorted, given)],
        ways * US,
        home=[*[-1] * units, *(draw(st.integers(0, places - 1)) for _ in given)],
        ends=[*(-1 if uniform else draw(anywhere) for _ in range(units)), *[-1] * len(given)],
    )
