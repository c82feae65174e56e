"""Placements beside the best there are, over problems that shrink."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.placement.solve.problem import Problem, scaled
from keel.placement.solve.solver import solve_placement

from ..drawn import best_labels, best_with_launches, cheapest_parts
from ..strategies import problems

pytestmark = pytest.mark.slow

quick = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(problems(2, 7))
def test_two_backends_are_placed_at_least_cost_in_the_fewest_parts(drew: Problem) -> None:
    terms, found = scaled(drew), solve_placement(drew)
    assert found.seconds == pytest.approx(best_labels(terms)[0] * terms.tick, abs=1e-15)
    assert found.bound == pytest.approx(found.seconds, abs=1e-15)
    assert len(set(found.group)) == cheapest_parts(found.backend.tolist(), drew.needs, [1, 1])


@quick
@given(st.integers(3, 4).flatmap(lambda p: problems(p, 5, uniform=True)))
def test_more_backends_are_placed_within_the_bound_of_the_method(drew: Problem) -> None:
    terms, found = scaled(drew), solve_placement(drew)
    least = best_labels(terms)[0] * terms.tick
    assert found.bound <= least + 1e-15 and least <= found.seconds + 1e-15
    assert found.seconds <= 2 * (drew.backends - 1) * least + 1e-15


@settings(quick, max_examples=25)
@given(st.integers(2, 3).flatmap(lambda p: problems(p, 5, launches=True)))
def test_with_launches_the_optimum_is_between_the_bound_and_the_placement(drew: Problem) -> None:
    terms, found = scaled(drew), solve_placement(drew)
    least = best_with_launches(terms, drew.needs) * terms.tick
    assert found.bound <= least + 1e-15 and least <= found.seconds + 1e-15
    exact = solve_placement(drew, exact=True)
    assert exact.seconds == pytest.approx(least, rel=1e-5, abs=1e-12)
