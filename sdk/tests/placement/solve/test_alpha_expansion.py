"""Placements of three and four backends beside the optimum, and bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.placement.solve.alpha_expansion import bound, expand_moves
from keel.placement.solve.ilp import lp_bound
from keel.placement.solve.min_cut import best_mix_of_two
from keel.placement.solve.problem import FORBIDDEN, problem, scaled, tensors, value

from ..drawn import best_labels, drawn


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(1, 7), st.integers(2, 4), st.booleans())
def test_a_placement_lies_between_its_bound_and_every_start(seed: int, units: int, backends: int, metric: bool) -> None:
    terms = scaled(drawn(seed, units, min(backends, 3) if units > 5 else backends, metric=metric))
    least, _ = best_labels(terms)
    found = value(terms, expand_moves(terms))
    assert bound(terms) <= least <= found
    cheapest = terms.cost.argmin(axis=1)
    singles = [np.where(terms.cost[:, b] < FORBIDDEN, b, cheapest) for b in range(terms.backends)]
    assert found <= min(value(terms, labels) for labels in [cheapest, *singles])
    assert found <= min(value(terms, best_mix_of_two(terms, a, b)) for a, b in itertools.permutations(singles, 2))
    if terms.backends == 2:
        assert bound(terms) == least == found


@pytest.mark.slow
def test_placements_are_near_the_optimum_in_the_mean() -> None:
    ratios = []
    for seed in range(80):
        terms = scaled(drawn(seed, 3 + seed % 5, 3 if seed % 5 > 2 else 3 + seed % 2))
        least, _ = best_labels(terms)
        if least + terms.credit > 0:
            ratios.append((value(terms, expand_moves(terms)) + terms.credit) / (least + terms.credit))
    assert np.mean(ratios) < 1.01 and np.max(ratios) < 1.25 and np.mean(np.array(ratios) == 1) > 0.9


@pytest.mark.slow
def test_uniform_ways_keep_the_bound_of_the_paper() -> None:
    for seed in range(40):
        drew = drawn(seed, 6, 3)
        t = drew.tensors
        single = [r.tolist()[:1] for r in np.split(t.reader, t.first[1:-1])]
        terms = scaled(
            problem(
                drew.compute, drew.needs, tensors(t.maker, single, (1 - np.eye(3)) * 4e-6, home=t.home % 3, ends=-1)
            )
        )
        least, _ = best_labels(terms)
        assert value(terms, expand_moves(terms)) <= 2 * least


def test_many_backends_of_two_places_are_placed_at_least_cost() -> None:
    for seed in range(15):
        drew = drawn(seed, 5, 4)
        t = drew.tensors
        readers = [r.tolist() for r in np.split(t.reader, t.first[1:-1])]
        terms = scaled(
            problem(
                drew.compute,
                drew.needs,
                tensors(
                    t.maker, readers, t.transfer[:, :2, :2], home=np.minimum(t.home, 1), ends=np.minimum(t.ends, 1)
                ),
                place=[0, 1, 1, 0],
            )
        )
        least, _ = best_labels(terms)
        assert value(terms, expand_moves(terms)) == bound(terms) == least


def test_a_free_backend_never_raises_the_cost() -> None:
    for seed in range(25):
        drew = drawn(seed, 8, 2)
        t = drew.tensors
        readers = [r.tolist() for r in np.split(t.reader, t.first[1:-1])]
        two = scaled(
            problem(
                drew.compute,
                drew.needs,
                tensors(t.maker, readers, t.transfer, home=t.home, ends=t.ends),
                place=drew.place,
            )
        )
        three = scaled(
            problem(
                np.hstack([drew.compute, drew.compute[:, :1]]),
                drew.needs,
                tensors(t.maker, readers, t.transfer, home=t.home, ends=t.ends),
                place=[*drew.place, drew.place[0]],
            )
        )
        assert value(three, expand_moves(three)) <= value(two, expand_moves(two))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(1, 5), st.integers(2, 3))
def test_the_linear_bound_holds(seed: int, units: int, backends: int) -> None:
    terms = scaled(drawn(seed, units, backends))
    assert lp_bound(terms) <= best_labels(terms)[0]
