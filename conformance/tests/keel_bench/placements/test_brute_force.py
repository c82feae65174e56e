"""The oracle of placements against plain enumeration, and the figures made with it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from keel import placement
from keel_bench.jobs import Job, Selection
from keel_bench.placements import optimality
from keel_bench.placements.brute_force import Oracle, cheapest_parts, fewest_parts
from keel_bench.placements.random_problems import drawn
from keel_conformance.workers.pool import Outcome


@pytest.mark.parametrize("launches", [False, True])
def test_the_search_finds_what_trying_all_finds(launches: bool) -> None:
    for seed in range(24):
        problem = drawn(seed, 2 + seed % 4, 2 + seed % 3, uniform=seed % 5 == 4)
        oracle, together = Oracle(problem, launches), problem.together.tolist()
        costs = [
            oracle.cost(labels)
            for labels in itertools.product(range(problem.backends), repeat=len(together))
            if len({(g, b) for g, b in zip(together, labels, strict=True)}) == len(set(together))
        ]
        assert oracle.better(1e9) == min(costs) < 1e9
        assert oracle.better(min(costs)) == min(costs)


def test_costs_are_those_of_the_definition() -> None:
    #  0 -> 1, 0 -> 2: unit 0 on place 0, both readers on place 1, a result back on place 0, a pattern that is broken
    moved = placement.tensors(
        [0, 1, -1],
        [[1, 2], [], [2]],
        np.array([[0, 3], [5, 0]]) * 1e-6,
        home=[-1, -1, 0],
        ends=[-1, 0, -1],
        handover=2e-6,
    )
    problem = placement.problem(
        np.array([[1, 9], [9, 1], [9, 1]]) * 1e-6,
        [[], [0], [0]],
        moved,
        launch=7e-6,
        savings=[placement.Saving((0, 1), 1, 4e-6)],
    )
    assert Oracle(problem, False).cost([0, 1, 1]) == (1 + 1 + 1) + (3 + 2) + (5 + 0) + 3
    assert Oracle(problem).cost([0, 1, 1]) == 16 + 2 * 7
    assert Oracle(problem, False).cost([1, 1, 1]) == 9 + 1 + 1 + 5 + 3 - 4


def test_parts_are_counted_by_what_can_run() -> None:
    assert fewest_parts([0, 1, 0], [[], [0], [1]]) == 3
    assert fewest_parts([0, 1, 0, 1], [[], [0], [], [2]]) == 2
    assert cheapest_parts([0, 1, 0, 1], [[], [0], [], [2]], [5, 1]) == 6
    assert cheapest_parts([0, 1, 1, 0], [[], [0], [], [2]], [1, 5]) == 7  # either order, and one backend twice


def rows(**changes: object) -> dict[Job, Outcome]:
    row = {"problems": 2, "more_parts": 0, "cpu_seconds": 1.0}
    for name in ("alone", "joint"):
        row |= {
            f"{name} costs": [4, 0],
            f"{name} optima": [4, 0],
            f"{name} miscounted": 0,
            f"{name} above_bound": 0,
            f"{name} beyond": 0,
        }
    return {
        Job("optimality", f"{b} backends", "keel", "", "", "line", "0-1"): Outcome({**row, **changes})
        for b in optimality.COUNTS
    }


def test_what_is_off_falls_short() -> None:
    assert all(bar.holds is not False for bar in optimality.bars(rows()))
    for changes, short in (
        ({"alone costs": [5, 0]}, 3),
        ({"alone costs": [4, 1]}, 3),
        ({"joint costs": [5, 0]}, 3),
        ({"alone miscounted": 1}, 1),
        ({"joint above_bound": 1}, 3),
        ({"more_parts": 1}, 1),
        ({"alone beyond": 1}, 2),
    ):
        assert sum(bar.holds is False for bar in optimality.bars(rows(**changes))) == short, changes


def test_two_thousand_problems_are_asked_for() -> None:
    todo = optimality.jobs(Selection((), (), "cpp"))
    spans = [tuple(map(int, job.along.split("-"))) for job in todo]
    assert sum(last - first + 1 for first, last in spans) == 2000
    few = optimality.jobs(Selection((), (), "cpp", scale="tiny"))
    assert [job.along for job in few] == ["0-9", "0-4", "0-4"]


def test_a_wrong_solver_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = placement.solve_placement

    def worse(problem: placement.Problem) -> placement.SolvedPlacement:
        found = solve(problem)
        first = np.where(np.isfinite(problem.compute[:, 0]), 0, problem.compute.argmin(axis=1))
        return replace(found, backend=first, group=tuple(range(len(first))))

    monkeypatch.setattr(placement, "solve_placement", worse)
    job = Job("optimality", "2 backends", "keel", "", "", "tiny", "0-9")
    short = [bar.name for bar in optimality.bars({job: Outcome(optimality.measure(job))}) if bar.holds is False]
    assert any("dearer" in name for name in short) and any("says wrong" in name for name in short)


def test_what_passes_between_backends_is_charged_by_backend() -> None:
    #  both backends compute on one place; backend 1 reads what backend 0 made, and both read what memory has
    ways = np.arange(9).reshape(1, 3, 3) * 1e-6
    passed = placement.tensors([0, -1], [[1], [0, 1]], np.broadcast_to(ways, (2, 3, 3)), home=[-1, 2])
    problem = placement.problem(np.ones((2, 2)) * 1e-6, [[], [0]], place=[0, 0], passed=passed)
    assert Oracle(problem, False).cost([0, 1]) == 2 + 1 + (6 + 7)
    assert Oracle(problem, False).cost([1, 1]) == 2 + 0 + 7
