"""Allocations of launch programs that take over dead tensors: which do, and that they need no more memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings

from keel.runtime import launch_reuse
from keel.runtime.launch_program import Allocate, CallLibrary, Free, LayOut, MakeView, Return, Reuse, Step
from keel.runtime.launch_reuse import LARGE, with_reuse
from keel.schedule.tensor_graph import Slot
from keel.types import TensorType, symbol

from .drawn_programs import drawn, steps
from .programs import function_of, most_memory, program_of

ROW = TensorType.dense(torch.float32, (4,))
OTHER = TensorType.dense(torch.float32, (5,))
BIG = TensorType.dense(torch.float32, (LARGE // 4,))
UNKNOWN = TensorType.dense(torch.float32, (symbol("n"),))


def library(*results: int, view_of: int | None = None) -> CallLibrary:
    return CallLibrary(torch.neg, (Slot(0),), {}, results, view_of=view_of)


def reused(steps: list[Step], *types: TensorType) -> list[tuple[int, int]]:
    """The tensors that take over others, each with the other one, which no step frees any more."""
    found = with_reuse(steps, types)
    pairs = [(s.tensor, s.dead) for s in found if isinstance(s, Reuse)]
    freed = [s.tensor for s in found if isinstance(s, Free)]
    assert not {dead for _, dead in pairs} & {*freed} and len(found) == len(steps) - len(pairs)
    return pairs


@pytest.mark.parametrize("type", [ROW, BIG, UNKNOWN], ids=str)
def test_a_dead_tensor_serves_the_next_allocation_of_its_type(type: TensorType) -> None:
    assert reused([Allocate(0), Free(0), Allocate(1), Free(1), Allocate(2)], type, type, type) == [(1, 0), (2, 1)]


@pytest.mark.parametrize(
    "other",
    [
        OTHER,
        TensorType.dense(torch.int32, (4,)),
        TensorType(torch.float32, (4,), (2,), ROW.device),
        TensorType.dense(torch.float32, (4,), "meta"),
        TensorType.dense(torch.float32, (2, 2)),
    ],
    ids=str,
)
def test_a_tensor_of_another_type_is_allocated(other: TensorType) -> None:
    assert not reused([Allocate(0), Free(0), Allocate(1)], ROW, other)


NEEDS = {
    "allocation": [Allocate(2)],
    "library": [library(3)],
    "layout": [LayOut(3)],
    "view": [MakeView(3, 2, 0)],
    "free": [Free(2)],
}


@pytest.mark.parametrize("between", NEEDS)
@pytest.mark.parametrize("type", [ROW, BIG, UNKNOWN], ids=str)
def test_large_memory_does_not_wait_while_other_is_needed(type: TensorType, between: str) -> None:
    waits = type is ROW or between in ("view", "free")
    steps: list[Step] = [Allocate(0), Free(0), *NEEDS[between], Allocate(1)]
    assert reused(steps, type, type, OTHER, OTHER) == ([(1, 0)] if waits else [])


def test_a_reuse_between_needs_no_memory() -> None:
    steps: list[Step] = [Allocate(0), Allocate(1), Free(0), Free(1), Allocate(2), Allocate(3)]
    assert reused(steps, BIG, ROW, ROW, BIG) == [(2, 1), (3, 0)]


def test_each_dead_tensor_is_taken_once_the_latest_first() -> None:
    steps: list[Step] = [Allocate(0), Allocate(1), Free(0), Free(1), *map(Allocate, (2, 3, 4))]
    assert reused(steps, *[ROW] * 5) == [(2, 1), (3, 0)]


def test_memory_in_which_a_view_lies_is_not_dead() -> None:
    view: list[Step] = [Allocate(0), MakeView(1, 0, 0), Free(0), Allocate(2), Free(1), Allocate(3)]
    assert reused(view, *[ROW] * 4) == [(3, 0)]
    of_library: list[Step] = [Allocate(0), library(1, view_of=0), MakeView(4, 1, 0), Free(0), Free(1), Allocate(2)]
    assert not reused(of_library, *[ROW] * 5)
    assert reused([*of_library, Free(4), Allocate(3)], *[ROW] * 5) == [(3, 0)]


def test_inputs_and_results_of_libraries_are_not_taken() -> None:
    assert not reused([Free(0), Allocate(1)], ROW, ROW)
    assert not reused([library(0), Free(0), Allocate(1)], ROW, ROW)
    assert not reused([library(0), MakeView(2, 0, 0), Free(0), Free(2), Allocate(1)], ROW, ROW, ROW)


def chain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
    for _ in range(4):
        x = x.T.contiguous().tanh() @ w  # not in place, since the kernel transposes
    return (x,)


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_chain_allocates_two_tensors(symbolic: bool) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    program = program_of(chain, x, w, symbolic=symbolic, arena=False)
    kinds = [type(s) for s in program.steps if isinstance(s, Allocate | Reuse)]
    assert kinds == [Allocate, Allocate, *[Reuse] * 6]
    run = function_of(program)
    first, second = run(x, w), run(x, w)
    torch.testing.assert_close(first, chain(x, w))
    torch.testing.assert_close(first, second)
    assert first[0].data_ptr() != second[0].data_ptr()


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(steps)
def test_no_program_needs_more_memory_because_of_it(program: Any) -> None:
    args = torch.randn(4, 3), torch.randn(4, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_reuse, "LARGE", 0)
        made = program_of(drawn(program), *args, arena=False)
        patch.setattr("keel.runtime.launch_builder.with_reuse", lambda steps, types: list(steps))
        plain = program_of(drawn(program), *args, arena=False)
    assert most_memory(made) == most_memory(plain)
    assert not any(isinstance(s, Reuse) for s in plain.steps)
    assert isinstance(made.steps[-1], Return) and made.steps[-1] == plain.steps[-1]
