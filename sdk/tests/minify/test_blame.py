"""Stages are blamed by what is known of backends, even if compiling a program ends its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from keel.minify import Deadline
from keel.minify.blame import blame
from keel.minify.failure import NONE, Failure, Subject
from keel.minify.graph_program import Call, Program, Value
from keel.minify.program_trials import facts
from keel.minify.reduce import Search
from keel.minify.trial_process import Outcome, TrialProcess

PROGRAM = Program(("x",), (Call("y", "aten.sin.default", (Value("x"),)),), ("y",), ((torch.ones(2),),))
CRASH = Failure("crash", "It died.", "died")


class Dying(TrialProcess):
    """Its process dies when a program is compiled."""

    def run(self, function: Callable[..., Any], *args: Any, seconds: float) -> Outcome:
        return Outcome(end="crash") if function is facts else Outcome(function(*args, lambda text: None))


class Swapped(Search):
    """A search in which the failure goes away with one swap."""

    def __init__(self, backend: str, helping: set[str]) -> None:
        super().__init__(Dying(), Subject((backend,)), Deadline(30.0), key=CRASH.key)
        self.helping = helping

    def failure(
        self, program: Program, subject: Subject | None = None, swap: str = "", fuel: int | None = None
    ) -> Failure:
        return NONE if swap in self.helping else CRASH


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
