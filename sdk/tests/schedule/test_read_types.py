"""In which types kernels' results are allocated. Every schedule here was also run, and gave what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.runtime.launch_builder import build_program
from keel.runtime.launch_program import MakeView
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall

Scheduled = Callable[..., list[Schedule]]


def views(schedule: Schedule) -> list[tuple[Any, ...]]:
    """The shapes of the views that a call makes."""
    steps = build_program(schedule, arena=False).steps
    return [schedule.tensors.tensors[s.tensor].type.shape for s in steps if isinstance(s, MakeView)]


def operand(schedule: Schedule, number: int = 0) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shape and the strides of an operand of the first library call."""
    call = next(s for s in schedule.steps if isinstance(s, ExternCall))
    type = schedule.tensors.tensors[call.operands[number]].type
    return type.shape, type.strides


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_a_result_has_the_shape_that_a_library_reads(scheduled: Scheduled, dynamic: bool) -> None:
    x, w = torch.randn(2, 3, 4), torch.randn(4, 5)
    (schedule,) = scheduled(lambda x, w: x.relu().view(-1, 4) @ w, x, w, dynamic=dynamic)
    assert not views(schedule)


def test_a_transposed_result_is_no_view(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: x @ w.sign().T, torch.randn(3, 4), torch.randn(5, 4))
    assert not views(schedule)
    assert operand(schedule, 1) == ((4, 5), (1, 4))


def test_most_readers_decide(scheduled: Scheduled) -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = w.sign()
        return y @ x, x @ y.T, (x + 1) @ y.T

    (schedule,) = scheduled(fn, torch.randn(4, 4), torch.randn(4, 4))
    calls = [s for s in schedule.steps if isinstance(s, ExternCall)]
    read = [schedule.tensors.tensors[t].type.strides for c in calls for t in c.operands]
    assert sorted(read).count((1, 4)) == 2
    assert views(schedule) == [(4, 4)]


def test_a_part_of_a_result_is_a_view(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: x.sign()[1:] @ w, torch.randn(4, 4), torch.randn(4, 4))
    assert views(schedule) == [(3, 4)]


def test_what_libraries_make_keeps_its_type(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).T @ w, torch.randn(4, 4), torch.randn(4, 4))
    assert views(schedule) == [(4, 4)]


def test_a_result_of_the_part_is_returned_itself(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x: x.sign().T, torch.randn(3, 4))
    assert not views(schedule)


def test_two_results_in_one_memory_remain_two(scheduled: Scheduled) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sign()
        return y, y.T

    (schedule,) = scheduled(fn, torch.randn(3, 4))
    assert len(set(schedule.tensors.outputs)) == len(schedule.tensors.outputs)
    compiled = torch.compile(fn, backend="keel", options={"backends": ["interp"]})
    first, second = compiled(torch.randn(3, 4))
    assert first is not second and first.data_ptr() == second.data_ptr()
