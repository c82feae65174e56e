"""The integer program against every placement and every row of parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from keel.placement.solve.ilp import lp_bound, solve_ilp
from keel.placement.solve.problem import problem, scaled, value

from ..drawn import best_labels, best_with_launches, cheapest_parts, drawn

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backends", [2, 3, 4])
def test_without_launches_it_is_the_best_placement(backends: int) -> None:
    for seed in range(12):
        drew = drawn(seed, 2 + seed % 4, backends)
        terms = scaled(drew)
        terms = replace(terms, launch=np.zeros_like(terms.launch))
        found, (least, _) = solve_ilp(terms, drew.needs, 1), best_labels(terms)
        assert found is not None
        assert least <= value(terms, found) <= least + 1e-6 * (abs(least) + 1e6)
        assert lp_bound(terms) <= least


@pytest.mark.parametrize("backends", [2, 3])
def test_with_launches_it_is_the_best_placement_and_its_parts(backends: int) -> None:
    for seed in range(12):
        drew = drawn(seed, 2 + seed % 4, backends)
        terms = scaled(drew)
        found, least = solve_ilp(terms, drew.needs, len(drew.needs)), best_with_launches(terms, drew.needs)
        assert found is not None
        parts = cheapest_parts(found[terms.bundle].tolist(), drew.needs, terms.launch.tolist())
        assert least <= value(terms, found) + parts <= least + 1e-6 * (abs(least) + 1e6)


def test_too_few_parts_are_no_placement() -> None:
    drew = problem([[1e-6, np.inf], [np.inf, 1e-6]], [[], [0]], launch=1e-6)
    assert solve_ilp(scaled(drew), drew.needs, 1) is None
    found = solve_ilp(scaled(drew), drew.needs, 2)
    assert found is not None and found.tolist() == [0, 1]
