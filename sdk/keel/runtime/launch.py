"""A loop-level part as one flat function: the schedule becomes a launch program, which is verified and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from keel.loops.ir import Kernel
from keel.plugin import Launcher, LoopTarget
from keel.runtime.freed_memory import keep_freed_memory
from keel.runtime.launch_builder import build_program
from keel.runtime.launch_printer import python_function
from keel.runtime.launch_program import CallLibrary, LaunchProgram, Step
from keel.runtime.launch_verify import verify_program
from keel.schedule.schedule import Schedule


def program(
    schedule: Schedule, launchers: Mapping[Kernel, Launcher], target: LoopTarget
) -> Callable[..., tuple[Any, ...]]:
    """A callable that takes the part's inputs positionally and returns the tuple of its outputs. Its attribute
    ``boxed`` takes them in a list, which it empties, so that each can be freed after its last use. Profilers
    show the name of the target.

    Safe to call from several threads: each call holds memory of its own.
    """
    made = build_program(schedule, target.arena, target.name, target.writes_pinned)
    verify_program(made)
    if any(map(partial(_makes_results_on_the_host, made), made.steps)):
        keep_freed_memory()
    return python_function(made, launchers)


def _makes_results_on_the_host(program: LaunchProgram, step: Step) -> bool:
    if not isinstance(step, CallLibrary) or step.out is not None or step.view_of is not None:
        return False
    return any(program.tensors[t].device.type == "cpu" for t in step.results if t >= 0)
