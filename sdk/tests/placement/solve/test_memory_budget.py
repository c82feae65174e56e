"""What is alive at once, and placements that fit into what there is."""

from __future__ import annotations

import numpy as np
import pytest

from keel.placement.solve.memory_budget import peaks
from keel.placement.solve.problem import Problem, problem, tensors
from keel.placement.solve.solver import solve_placement


def chain(*, memory: tuple[float, float]) -> Problem:
    """Four units in a row, faster on the first place, where each result has ten bytes; all are read at the end."""
    moved = tensors([0, 1, 2, 3], [[1, 3], [2, 3], [3], []], (1 - np.eye(2)) * 1e-6, size=10, ends=[-1, -1, -1, 0])
    return problem([[1e-6, 5e-6]] * 4, [[], [0], [0, 1], [0, 1, 2]], moved, memory=memory)


def used(drew: Problem, *labels: int) -> list[int]:
    return peaks(drew, np.arange(len(labels)), (np.array(labels), list(range(len(labels))))).tolist()


def test_tensors_live_from_their_maker_to_their_last_reader() -> None:
    drew = chain(memory=(np.inf, np.inf))
    assert used(drew, 0, 0, 0, 0) == [40, 0]
    assert used(drew, 1, 1, 1, 0) == [40, 30]  # at the end copies of all three, and the result
    assert used(drew, 0, 1, 1, 1) == [20, 40]  # the first, then the result that must end there


def test_inputs_live_from_the_start() -> None:
    moved = tensors([-1, -1, 0, 1], [[0], [1], [1], []], np.zeros((2, 2)), home=[0, 1, -1, -1], size=[7, 5, 3, 1])
    drew = problem(np.ones((2, 2)), [[], [0]], moved)
    assert used(drew, 0, 0) == [10, 5]  # both inputs' homes, and what the first unit makes
    assert used(drew, 1, 1) == [7, 15]  # a copy of the first input; then 5 + 3 + 1


def test_what_does_not_fit_goes_elsewhere() -> None:
    assert solve_placement(chain(memory=(40, 40))).backend.tolist() == [0, 0, 0, 0]
    found = solve_placement(chain(memory=(30, 40)))
    assert not found.over and 1 in found.backend.tolist()
    assert peaks(chain(memory=(30, 40)), np.arange(4), (found.backend, list(found.group)))[0] <= 30
    assert found.bound <= found.seconds


def test_what_fits_nowhere_is_said() -> None:
    found = solve_placement(chain(memory=(5, 5)))
    assert found.over and all(missing > 0 for missing in found.over.values())


@pytest.mark.parametrize("limit", [40.0, np.inf])
def test_a_limit_that_does_not_bind_changes_nothing(limit: float) -> None:
    assert solve_placement(chain(memory=(limit, limit))).seconds == pytest.approx(4e-6)
