"""Problems, their terms in integers, and what a placement costs by the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel.placement.solve.problem import FORBIDDEN, Problem, Saving, pinned, problem, scaled, tensors, value

from ..drawn import US, drawn

ONE = np.array([[0.0, 1.0], [2.0, 0.0]])  # from place 0 to 1 a second, back two


def cost(given: Problem, *backend: int) -> float:
    """Seconds of a placement of units, launches left out."""
    terms = scaled(given)
    labels = np.zeros(len(terms.cost), np.int64)
    labels[terms.bundle] = backend
    return value(terms, labels) * terms.tick


def by_definition(p: Problem, backend: list[int]) -> float:
    """The same, one tensor and one reader at a time."""
    total = sum(float(p.compute[u, b]) for u, b in enumerate(backend)) - 0.0
    t = p.tensors
    for i, (maker, home, ends) in enumerate(zip(t.maker.tolist(), t.home.tolist(), t.ends.tolist(), strict=True)):
        readers = t.reader[t.first[i] : t.first[i + 1]].tolist()
        source = int(p.place[backend[maker]]) if maker >= 0 else home
        reached = {int(p.place[backend[u]]) for u in readers} | ({ends} if ends >= 0 else set())
        total += sum(float(t.transfer[i, source, q]) for q in reached - {source})
        if maker >= 0:
            total += float(t.handover[i]) * len({backend[u] for u in readers} - {backend[maker]})
    if (t := p.passed) is not None:
        for i, (maker, home) in enumerate(zip(t.maker.tolist(), t.home.tolist(), strict=True)):
            source = backend[maker] if maker >= 0 else home
            reached = {backend[u] for u in t.reader[t.first[i] : t.first[i + 1]].tolist()}
            total += sum(float(t.transfer[i, source, q]) for q in reached - {source})
    return total - sum(s.seconds for s in p.savings if {backend[u] for u in s.units} == {s.backend})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 30), st.integers(1, 8), st.integers(2, 4))
def test_the_value_of_a_placement_is_what_the_definition_says(seed: int, units: int, backends: int) -> None:
    drew, chance = drawn(seed, units, backends), np.random.default_rng(seed)
    terms = scaled(drew)
    labels = np.array([chance.choice(np.nonzero(ticks < FORBIDDEN)[0]) for ticks in terms.cost])
    assert terms.tick == 1e-12
    assert value(terms, labels) * 1e-12 == pytest.approx(by_definition(drew, labels[terms.bundle].tolist()), abs=1e-18)


def test_a_tensor_moves_once_for_all_its_readers() -> None:
    moved = tensors([0], [[1, 2, 3]], ONE)
    drew = problem(np.zeros((4, 2)), [[], [0], [0], [0]], moved)
    assert cost(drew, 0, 1, 1, 1) == pytest.approx(1) and cost(drew, 1, 0, 1, 0) == pytest.approx(2)


def test_inputs_come_from_home_and_results_end_where_they_must() -> None:
    moved = tensors([-1, 0], [[0], []], ONE, home=[0, -1], ends=[-1, 0])
    drew = problem(np.zeros((1, 2)), [[]], moved)
    assert cost(drew, 0) == 0 and cost(drew, 1) == pytest.approx(3)


def test_a_handover_is_charged_for_each_backend_wherever_it_is() -> None:
    moved = tensors([0], [[1, 2]], [[0.0]], handover=1.0)
    drew = problem(np.zeros((3, 3)), [[], [0], [0]], moved, place=[0, 0, 0])
    assert cost(drew, 0, 0, 0) == 0 and cost(drew, 0, 1, 1) == pytest.approx(1)
    assert cost(drew, 0, 1, 2) == pytest.approx(2)


def test_a_saving_needs_all_of_its_units() -> None:
    drew = problem(np.ones((3, 2)), [[], [], []], savings=[Saving((0, 2), 1, 0.5)])
    assert cost(drew, 1, 0, 1) == pytest.approx(2.5) and cost(drew, 1, 1, 0) == pytest.approx(3)


def test_what_is_together_is_one_bundle() -> None:
    drew = problem([[1, 2], [3, np.inf], [5, 6]], [[], [0], [1]], tensors([0, 1], [[1], [2]], ONE), together=[7, 1, 7])
    terms = scaled(drew)
    assert len(terms.cost) == 2 and terms.bundle.tolist() == [1, 0, 1]
    assert terms.cost[1].tolist() == [6e12 / (terms.tick * 1e12), 8e12 / (terms.tick * 1e12)]
    assert cost(drew, 1, 0, 1) == pytest.approx(8 + 3 + 2 + 1)


def test_large_costs_get_larger_ticks_and_no_overflow() -> None:
    drew = problem(np.full((10, 2), 1e6), [[]] * 10)
    terms = scaled(drew)
    assert terms.tick > 1e-12 and terms.cost.sum(axis=0).max() < FORBIDDEN // 2
    assert cost(drew, *[1] * 10) == pytest.approx(1e7, rel=1e-9)


def test_pins_leave_one_backend() -> None:
    assert pinned(problem(np.ones((2, 2)), [[], []]), {1: 0}).compute.tolist() == [[1, 1], [1, np.inf]]
    with pytest.raises(ValueError, match="No backend can take unit 0"):
        pinned(problem([[1, np.inf]], [[]]), {0: 1})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: problem([[np.inf, np.inf]], [[]]), "No backend can take unit 0"),
        (
            lambda: problem([[1, np.inf], [np.inf, 1]], [[], []], together=[0, 0]),
            "unit 0 and the units that must stay with it",
        ),
        (lambda: problem([[-1.0, 1.0]], [[]]), "not negative"),
        (lambda: problem([[np.nan, 1.0]], [[]]), "not negative"),
        (lambda: problem([[1.0, 1.0]], []), "as many needs"),
        (lambda: problem([[1.0, 1.0]], [[]], tensors([-1], [[0]], ONE)), "a home or a maker"),
        (lambda: problem([[1.0, 1.0]], [[]], tensors([0], [[3]], ONE)), "units as makers and readers"),
        (lambda: problem([[1.0, 1.0]], [[]], tensors([0], [[]], np.zeros((3, 3)))), "transfers"),
        (lambda: problem([[1.0, 1.0]], [[]], launch=np.inf), "finite launch"),
        (lambda: problem([[1.0, 1.0]], [[]], savings=[Saving((0,), 2, US)]), "savings on backends"),
    ],
)
def test_what_does_not_fit_is_said(wrong: object, words: str) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=words):
        wrong()
