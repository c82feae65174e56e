"""Stages are blamed by what is known of backends, even if compiling a program ends its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from keel.errors import KeelError
from keel.minify import Deadline
from keel.minify.blame import blame
from keel.minify.failure import NONE, Failure, Subject, _modules
from keel.minify.graph_program import Call, Program, Value
from keel.minify.program_trials import facts
from keel.minify.reduce import Search
from keel.minify.trial_process import Outcome, TrialProcess
from keel.named_models import backend_named

PROGRAM = Program(("x",), (Call("y", "aten.sin.default", (Value("x"),)),), ("y",), ((torch.ones(2),),))
NO_LIMITS: Mapping[str, float] = {}
CRASH = Failure("crash", "It died.", "died")


class Dying(TrialProcess):
    """Its process dies when a program is compiled."""

    def run(
        self, function: Callable[..., Any], *args: Any, seconds: float, limits: Mapping[str, float] = NO_LIMITS
    ) -> Outcome:
        return Outcome(end="crash") if function is facts else Outcome(function(*args, lambda text: None))


class Swapped(Search):
    """A search in which the failure goes away with one swap."""

    def __init__(self, backend: str, helping: set[str], kind: Failure = CRASH) -> None:
        super().__init__(Dying(), Subject((backend,)), Deadline(30.0), key=kind.key)
        self.helping, self.kind = helping, kind

    def failure(
        self, program: Program, subject: Subject | None = None, swap: str = "", fuel: int | None = None
    ) -> Failure:
        return NONE if swap in self.helping else self.kind


class Different(Swapped):
    """A search in which the program fails in another way if eager PyTorch runs its parts."""

    def failure(
        self, program: Program, subject: Subject | None = None, swap: str = "", fuel: int | None = None
    ) -> Failure:
        other = Failure("raises", "It raised ValueError.", "ValueError")
        return other if swap == "eager parts" else super().failure(program, subject, swap, fuel)


@pytest.mark.parametrize(
    ("backend", "helping", "stage"),
    [
        ("cpp", {"eager parts", "interpreted"}, "rendering"),
        ("cpp", {"eager parts", "eager externs"}, "extern"),
        ("cpp", set(), "runtime"),
        ("eager", {"eager parts"}, "plugin"),
    ],
)
def test_a_crash_while_compiling_is_blamed_on_a_stage(backend: str, helping: set[str], stage: str) -> None:
    assert blame(Swapped(backend, helping), PROGRAM).stage == stage


def test_a_swap_with_another_failure_does_not_count() -> None:
    assert blame(Different("cpp", {"eager externs"}), PROGRAM).stage == "extern"


@pytest.mark.parametrize("helping", [{"eager parts"}, set[str]()])
@pytest.mark.parametrize(
    ("modules", "stage"),
    [
        (("keel.runtime.launch_builder",), "runtime"),
        (("keel.schedule.memory_plan", "keel.schedule.emit"), "runtime"),
        (("keel.symbols.dims", "keel.loops.lower.unary", "keel.loop_level"), "lowering"),
        (("keel.loops.expansion",), "loop transformation"),
        (("keel.loops.builder", "keel.loops.lower.data_movement", "keel.externs"), "lowering"),
        (("keel.loops.verify", "keel.loop_level"), "lowering"),
        (("keel.loops.interpret", "keel.runtime.launch_printer"), "lowering"),
        (("keel.torch_adapter.calls", "keel.spec.ops.normalization", "keel.graph.decompose"), "decomposition"),
    ],
)
def test_an_error_that_no_swap_explains_is_blamed_on_the_module_that_raised_it(
    helping: set[str], modules: tuple[str, ...], stage: str
) -> None:
    raised = Failure("raises", "It raised KeyError.", "KeyError", modules=modules)
    assert blame(Swapped("cpp", helping, raised), PROGRAM).stage == stage


@pytest.mark.parametrize(("helping", "stage"), [({"eager parts"}, "lowering"), (set[str](), "runtime")])
def test_an_error_of_no_known_module_is_blamed_on_the_stage_that_is_left(helping: set[str], stage: str) -> None:
    assert blame(Swapped("cpp", helping, Failure("raises", modules=("keel.cache",))), PROGRAM).stage == stage


def test_the_modules_of_an_error_begin_with_the_innermost_one_of_keel() -> None:
    with pytest.raises(KeelError) as caught:
        backend_named("keel.errors:nothing")
    assert _modules(caught.value)[0] == "keel.named_models"
