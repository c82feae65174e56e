"""Mixtures of two placements, against every mixture there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.placement.solve.min_cut import best_mix_of_two
from keel.placement.solve.problem import FORBIDDEN, Ints, Terms, problem, scaled, tensors, value

from ..drawn import best_labels, drawn


def only(terms: Terms, backend: int) -> Ints:
    """That backend where it is possible, else the cheapest."""
    return np.where(terms.cost[:, backend] < FORBIDDEN, backend, terms.cost.argmin(axis=1))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(1, 9))
def test_two_backends_are_placed_at_least_cost_and_ties_go_to_the_first(seed: int, units: int) -> None:
    terms = scaled(drawn(seed, units, 2))
    least, placements = best_labels(terms)
    found = best_mix_of_two(terms, only(terms, 0), only(terms, 1))
    assert value(terms, found) == least
    assert found.tolist() == [min(labels[v] for labels in placements) for v in range(len(found))]


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(1, 7), st.integers(3, 4), st.booleans())
def test_of_more_backends_two_are_mixed_best_and_others_stay(seed: int, units: int, backends: int, far: bool) -> None:
    terms = scaled(drawn(seed, units, backends))
    low, high = only(terms, 0), np.where(terms.cost[:, 1] < FORBIDDEN, 1, only(terms, 0))
    mixtures = itertools.product(*({a, b} for a, b in zip(low.tolist(), high.tolist(), strict=True)))
    least = min(value(terms, np.array(m)) for m in mixtures)
    if all(label in (0, 1) for label in low.tolist()):  # a third that stays may have other prices
        assert value(terms, best_mix_of_two(terms, low, high, lean=far)) == least
    assert least <= value(terms, best_mix_of_two(terms, low, high, lean=far)) <= value(terms, low)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(1, 8), st.booleans())
def test_a_mixture_of_any_two_is_no_dearer_than_the_first(seed: int, units: int, lean: bool) -> None:
    terms, chance = scaled(drawn(seed, units, 3)), np.random.default_rng(seed)
    low, high = (np.array([chance.choice(np.nonzero(c < FORBIDDEN)[0]) for c in terms.cost]) for _ in range(2))
    found = best_mix_of_two(terms, low, high, lean=lean)
    assert ((found == low) | (found == high)).all()
    assert value(terms, found) <= value(terms, low)


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e-3, 1.0, 1e3])
def test_costs_that_32_bits_do_not_hold_are_cut_exactly(scale: float) -> None:
    # A chain of equal gains towards backend 1, but for its first unit and the way over to it.
    units = 40
    compute = np.array([[3.0, 2.0]] * units) * scale
    compute[0] = [0, np.inf]
    for way, high in ((38.5, True), (39.5, False)):
        ways = tensors(range(units - 1), [[v + 1] for v in range(units - 1)], way * scale * (1 - np.eye(2)))
        terms = scaled(problem(compute, [[v - 1] if v else [] for v in range(units)], ways))
        found = best_mix_of_two(terms, np.zeros(units, np.int64), np.array([0] + [1] * (units - 1)))
        assert found.tolist() == [0] + [int(high)] * (units - 1)


def test_nothing_to_choose_is_nothing_to_cut() -> None:
    terms = scaled(problem(np.ones((3, 2)), [[], [], []]))
    same = np.array([0, 1, 0])
    assert best_mix_of_two(terms, same, same).tolist() == [0, 1, 0]
    empty = np.zeros(0, np.int64)
    assert best_mix_of_two(scaled(problem(np.zeros((0, 2)), [])), empty, empty).tolist() == []
