"""Programs become smaller as long as they fail for the same reason."""

from __future__ import annotations

from collections.abc import Callable

import torch

from keel.minify import Deadline
from keel.minify.failure import NONE, Failure, Subject
from keel.minify.graph_program import Call, Program, Value, evaluate
from keel.minify.reduce import CALLS, Search, aliases_of, fewer_calls, fewer_options, reduced, seconds_of_calls
from keel.minify.trial_process import TrialProcess

PROGRAM = Program(
    ("x", "w"),
    (
        Call("a", "aten.mm.default", (Value("x"), Value("w"))),
        Call("b", "aten.view.default", (Value("a"), [24])),
        Call("c", "aten.sin.default", (Value("b"),)),
        Call("d", "aten.add.Tensor", (Value("c"), Value("b")), (("alpha", 2),)),
        Call("e", "aten.exp.default", (Value("d"),)),
    ),
    ("e",),
    ((torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.ones(5, 6)),),
)


class Known(Search):
    """A search whose trials are a function of the program."""

    def __init__(self, verdict: Callable[[Program], Failure]) -> None:
        super().__init__(
            TrialProcess(), Subject(("one", "two"), (("one.level", 3),)), Deadline(30.0), key=("wrong", "")
        )
        self.verdict = verdict

    def failure(
        self, program: Program, subject: Subject | None = None, swap: str = "", fuel: int | None = None
    ) -> Failure:
        evaluate(program, *program.inputs[0])
        return NONE if subject is not None and "two" not in subject.backends else self.verdict(program)


def test_one_call_with_plain_values_is_left() -> None:
    def verdict(program: Program) -> Failure:
        has_sum = any(call.op == "aten.add.Tensor" for call in program.calls)
        return Failure("wrong") if has_sum else Failure("raises")

    small = reduced(PROGRAM, Known(verdict))
    (call,) = small.calls
    assert call.op == "aten.add.Tensor" and call.kwargs == () and small.size == 1
    assert all(x.numel() == 1 and bool((x == 1).all()) for x in small.inputs[0])


def test_another_kind_of_failure_does_not_count() -> None:
    def verdict(program: Program) -> Failure:
        return Failure("wrong") if len(program.calls) == 5 else Failure("raises", detail="other")

    assert reduced(PROGRAM, Known(verdict)).size == 5


def test_sizes_are_cut_together_with_the_numbers_of_calls() -> None:
    def verdict(program: Program) -> Failure:
        viewed = any(call.op == "aten.view.default" for call in program.calls)
        return Failure("wrong") if viewed and program.inputs[0][0].numel() >= 4 else NONE

    small = reduced(PROGRAM, Known(verdict))
    assert small.size == 2 and small.inputs[0][0].numel() < 8  # a view and its copy


def test_a_value_that_only_a_dropped_argument_reads_is_dropped_too() -> None:
    call = Call("s", "aten.clamp.Tensor", (Value("x"),), (("min", Value("a")), ("max", Value("b"))))
    program = Program(("x", "a", "b"), (call,), ("s",), ((torch.ones(1), torch.zeros(1), torch.ones(1)),))
    small = reduced(program, Known(lambda program: Failure("wrong")))
    assert len(small.params) == len(small.inputs[0]) == 2  # clamp needs one of them


def test_calls_may_take_much_longer_than_eager_pytorch() -> None:
    assert seconds_of_calls(PROGRAM) >= CALLS


def test_options_and_backends_that_do_nothing_are_left_out() -> None:
    subject = fewer_options(PROGRAM, Known(lambda program: Failure("wrong")))
    assert subject == Subject(("two",))


def test_no_result_is_a_view_of_a_parameter() -> None:
    def verdict(program: Program) -> Failure:
        return Failure("wrong") if any(call.op == "aten.view.default" for call in program.calls) else NONE

    small = reduced(PROGRAM, Known(verdict))
    assert "aten.view.default" in [call.op for call in small.calls] and not aliases_of(small)


def test_a_result_that_fails_as_a_view_of_a_parameter_alone_stays_one() -> None:
    calls = Call("b", "aten.view.default", (Value("x"), [20])), Call("c", "aten.sin.default", (Value("b"),))
    program = Program(("x",), calls, ("b", "c"), ((torch.ones(4, 5),),))

    def verdict(program: Program) -> Failure:
        ops = [call.op for call in program.calls]
        return Failure("wrong") if "aten.view.default" in ops and "aten.clone.default" not in ops else NONE

    assert reduced(program, Known(verdict)).size == 1


def test_the_whole_program_is_not_tried_again() -> None:
    sizes = list[int]()

    def verdict(program: Program) -> Failure:
        sizes.append(program.size)
        return NONE

    fewer_calls(PROGRAM, Known(verdict))
    assert sizes and max(sizes) < PROGRAM.size
