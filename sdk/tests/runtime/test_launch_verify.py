"""Launch programs that are right are taken and run; those that lie next to one are refused, with the step."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import sympy
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from keel.errors import KeelError
from keel.runtime.launch_builder import build_program
from keel.runtime.launch_program import (
    Allocate,
    Assert,
    BindSymbol,
    CallLibrary,
    CheckIndices,
    Compute,
    Free,
    GiveArena,
    InputNumber,
    LaunchKernel,
    LaunchProgram,
    LayOut,
    MakeView,
    Own,
    Return,
    Reuse,
    SettleChecks,
    SizeOf,
    Step,
    TakeArena,
)
from keel.runtime.launch_verify import verify_program
from keel.schedule.tensor_graph import Slot
from keel.types import SymType, TensorType, symbol

from .drawn_programs import drawn, steps
from .programs import dropped, function_of, instead, program_of, renamed, schedule_of, swapped


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(steps, st.booleans(), st.booleans(), st.integers(0, 100))
def test_any_program_is_right_and_computes_what_eager_does_and_its_neighbors_are_wrong(program, symbolic, arena, seed):
    torch.manual_seed(seed)
    fn, args = drawn(program), (torch.randn(4, 3), torch.randn(4, 3))
    made = program_of(fn, *args, symbolic=symbolic, arena=arena)
    run = function_of(made)
    others = (torch.randn(6, 5), torch.randn(6, 5)) if symbolic else args
    for inputs in (args, others, args):
        for got, want in zip(run(*inputs), fn(*inputs), strict=True):
            torch.testing.assert_close(got, want)
    for wrong in (*dropped(made), *swapped(made), *renamed(made, random.Random(seed))):
        with pytest.raises(KeelError, match="launch program") as raised:
            verify_program(wrong)
        assert raised.value.code == "bad-graph"


# -- single programs -------------------------------------------------------------------------------------

N = symbol("n")
ROW = TensorType.dense(torch.float32, (4,))
WRITE = CallLibrary(torch.neg, (Slot(0),), {}, out=1)
MATRIX = TensorType.dense(torch.float32, (4, 4))


def refusal(program: LaunchProgram) -> str:
    """The sentence with which a program is refused."""
    with pytest.raises(KeelError) as raised:
        verify_program(program)
    return raised.value.what


def kernel_program() -> LaunchProgram:
    """A kernel in the arena, a library call that fills memory there, a kernel that reads both."""
    return program_of(lambda x, y: (x.tanh() @ y + 1,), torch.randn(4, 4), torch.randn(4, 4))


def number_of(program: LaunchProgram, kind: type[Step]) -> int:
    return next(k for k, s in enumerate(program.steps) if isinstance(s, kind))


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ((), "does not return"),
        ((Return((0,)), Return((0,))), "comes after the end"),
        ((Return((7,)),), "names t7, which is not a tensor"),
        ((Return((1,)),), "uses t1 before it is made"),
        ((Allocate(1), Return((1,))), "reads t1 before it is written"),
        ((Allocate(0), Return((0,))), "makes t0, which is there already"),
        ((Allocate(1), Free(1), Allocate(1), Return((0,))), "makes t1, which is there already"),
        ((Allocate(1), Free(1), MakeView(2, 1, 0), Return((0,))), "uses t1 after it is freed"),
        ((Free(0), Return((0,))), "uses t0 after it is freed"),
        ((Allocate(1), Reuse(2, 1), MakeView(4, 1, 0), Return((0,))), "uses t1 after it is freed"),
        ((Allocate(1), Reuse(2, 1), Reuse(4, 1), Return((0,))), "uses t1 after it is freed"),
        ((Allocate(1), Free(1), Reuse(2, 1), Return((0,))), "uses t1 after it is freed"),
        ((Reuse(2, 1), Return((0,))), "uses t1 before it is made"),
        ((Allocate(1), Allocate(2), Reuse(2, 1), Return((0,))), "makes t2, which is there already"),
        ((Allocate(1), WRITE, Reuse(2, 1), Return((2,))), "reads t2 before it is written"),
        ((Allocate(1), WRITE, Reuse(2, 1), Return((1,))), "uses t1 after it is freed"),
        ((Reuse(2, 0), Return((0,))), "reuses t0, which is not allocated here"),
        ((Allocate(1), MakeView(2, 1, 0), Reuse(4, 2), Return((0,))), "reuses t2, which is not allocated here"),
        ((Allocate(1), MakeView(2, 1, 0), Reuse(4, 1), Return((0,))), "reuses t1, in which t2 lies"),
        (
            (Allocate(1), WRITE, CallLibrary(torch.t, (Slot(1),), {}, (2,), view_of=1), Reuse(4, 1), Return((0,))),
            "reuses t1, in which t2 lies",
        ),
        ((Allocate(1), Reuse(5, 1), Return((0,))), "reuses t1 of f32[4] as t5 of f32[4, 4]"),
        ((BindSymbol("n", InputNumber(1)), Allocate(1), Reuse(3, 1), Return((0,))), "reuses t1 of f32[4] as t3 of"),
        ((Allocate(3), Return((0,))), "needs the size n, which no earlier step binds"),
        ((BindSymbol("n", SizeOf(0, 1)), Return((0,))), "reads dimension 1 of t0, which has 1"),
        ((BindSymbol("n", SizeOf(1, 0)), Return((0,))), "uses t1 before it is made"),
        ((BindSymbol("n", InputNumber(0)), Return((0,))), "reads input 0, which is not a number"),
        ((BindSymbol("n", InputNumber(1), factor=0), Return((0,))), "divides by zero"),
        ((BindSymbol("m", InputNumber(1), rest=N), Return((0,))), "needs the size n"),
        (
            (BindSymbol("n", InputNumber(1)), BindSymbol("n", SizeOf(0, 0)), Return((0,))),
            "binds n, which is bound already",
        ),
        ((BindSymbol("n", InputNumber(1)), Compute("n", N + 1), Return((0,))), "binds n, which is bound already"),
        ((Compute("m", N + 1), Return((0,))), "needs the size n"),
        ((Assert(sympy.Gt(N, 3), "no"), Return((0,))), "needs the size n"),
        ((Return((SymType(N),)),), "needs the size n"),
        ((Allocate(1), MakeView(2, 1, 1), Return((0,))), "views 1 + 4 elements of t1, whose memory has 4"),
        ((GiveArena(), Return((0,))), "gives back what was not taken"),
        ((TakeArena(), Return((0,))), "ends without giving the arena back"),
        ((TakeArena(), TakeArena(), Return((0,))), "takes a second arena"),
        ((CheckIndices((0,)), Return((0,))), "looks at t0, in which nothing is recorded"),
        ((SettleChecks(True), Return((0,))), "looks at checks that no device records"),
        ((LayOut(1), Return((0,))), "uses t1 before it is made"),
        ((CallLibrary(torch.neg, (), {}, out=0), Return((0,))), "writes to t0, which lies in the input t0"),
        ((Own(1), Return((0,))), "uses t1 before it is made"),
        ((Allocate(1), Own(1), Return((0,))), "makes t1 its own, which is not an input"),
        ((MakeView(1, 0, 0), Own(0), Return((0,))), "makes t0 its own, in which t1 lies"),
        (
            (MakeView(1, 0, 0), CallLibrary(torch.neg, (), {}, out=1), Return((0,))),
            "writes to t1, which lies in the input t0",
        ),
        (
            (CallLibrary(torch.neg, (), {}, (1,), view_of=0), CallLibrary(torch.neg, (), {}, out=1), Return((0,))),
            "writes to t1, which lies in the input t0",
        ),
        (
            (Allocate(1), CallLibrary(torch.neg, (), {}, (2,), out=1), Return((0,))),
            "both fills a tensor and returns some",
        ),
        ((CallLibrary(torch.neg, (SymType(N),), {}, (1,)), Return((1,))), "needs the size n"),
    ],
    ids=lambda v: v.replace(" ", "-") if isinstance(v, str) else "",
)
def test_a_wrong_step_is_refused_in_a_sentence(steps: tuple[Step, ...], sentence: str) -> None:
    types = (ROW, ROW, ROW, TensorType.dense(torch.float32, (N,)), ROW, MATRIX)
    assert sentence in refusal(LaunchProgram(types, (0, SymType(N)), steps))


def test_an_input_that_is_overwritten_is_returned() -> None:
    write = CallLibrary(torch.neg, (), {}, out=0)
    verify_program(LaunchProgram((ROW,), (0,), (write, Return((0,))), overwritten=frozenset({0})))
    lost = LaunchProgram((ROW,), (0,), (write, Return((None,))), overwritten=frozenset({0}))
    assert "does not return t0, which it may overwrite" in refusal(lost)


def test_an_input_that_is_made_its_own_may_be_written_to_and_lost() -> None:
    write = CallLibrary(torch.neg, (), {}, out=0)
    verify_program(LaunchProgram((ROW,), (0,), (Own(0), write, Return((None,)))))


def test_memory_in_the_arena_is_used_in_its_time_only() -> None:
    program = kernel_program()
    for k, kept in enumerate(program.arena.tensors):
        for wrong in (replace(kept, last=kept.last - 1), replace(kept, first=kept.first + 1)):
            plan = replace(program.arena, tensors=(*program.arena.tensors[:k], wrong, *program.arena.tensors[k + 1 :]))
            assert "whose memory is its own only from step" in refusal(replace(program, arena=plan))


def test_nothing_of_the_arena_is_returned_or_used_after_it_is_given_back() -> None:
    program = kernel_program()
    inside = program.arena.tensors[0].tensor
    last = len(program.steps) - 1
    assert "after it is freed" in refusal(instead(program, last, Return((inside,))))
    give = number_of(program, GiveArena)
    assert "lies in the arena" in refusal(
        replace(program, steps=(*program.steps[:give], Return((inside,)), *program.steps[give:]))
    )
    assert "whose memory is its own" in refusal(instead(program, give, LayOut(inside)))
    assert "which lies in the arena" in refusal(instead(program, program.arena.tensors[0].last, Free(inside)))


def test_a_kernel_is_given_what_it_takes() -> None:
    program = kernel_program()
    at = number_of(program, LaunchKernel)
    step = program.steps[at]
    assert isinstance(step, LaunchKernel)
    assert "tensors to a kernel of" in refusal(instead(program, at, replace(step, tensors=step.tensors[:-1])))
    assert "gives the numbers ('n',)" in refusal(instead(program, at, replace(step, symbols=("n",))))
    for type, sentence in ((replace(MATRIX, dtype=torch.float16), "of torch.float16 as"), (ROW, "of 4 elements as")):
        types = list(program.tensors)
        types[step.tensors[0]] = type
        assert sentence in refusal(replace(program, tensors=tuple(types)))


def test_an_arena_is_kept_apart_for_each_size_that_it_depends_on() -> None:
    program = program_of(lambda x, y: (x.tanh() @ y + 1,), torch.randn(4, 4), torch.randn(4, 4), symbolic=True)
    assert program.arena.key
    assert "for which no arenas are kept apart" in refusal(replace(program, arena=replace(program.arena, key=())))


def test_a_schedule_that_reads_before_it_writes_becomes_no_program() -> None:
    schedule = schedule_of(lambda x, y: (x.tanh() @ y + 1,), torch.randn(4, 4), torch.randn(4, 4))
    turned = replace(schedule, steps=(schedule.steps[1], schedule.steps[0], *schedule.steps[2:]))
    assert "before it is written" in refusal(build_program(turned))
