"""A loop-level part as one flat function: the schedule becomes a launch program, which is verified and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from keel.loops.ir import Kernel
from keel.plugin import Launcher, LoopTarget, Source
from keel.runtime.device_tensors import DeviceTensors
from keel.runtime.freed_memory import keep_freed_memory
from keel.runtime.launch_builder import build_program
from keel.runtime.launch_printer import python_function
from keel.runtime.launch_program import CallLibrary, LaunchProgram, Step
from keel.runtime.launch_verify import verify_program
from keel.schedule.schedule import Schedule


@dataclass(frozen=True)
class LoopPart:
    """A part that a loop target compiled, before it is built: its launch program, and the source of each of its
    kernels, in the order of ``program.kernels()``. ``constants`` are the positions of inputs that are constants.
    """

    program: LaunchProgram
    sources: tuple[Source, ...]
    constants: tuple[int, ...] = ()


def loop_program(schedule: Schedule, target: LoopTarget) -> LaunchProgram:
    """The verified launch program of a schedule. Profilers show the name of the target."""
    hidden = target.memory is not None
    made = build_program(schedule, target.arena, target.name, target.writes_pinned, hidden)
    verify_program(made)
    return made


def loop_function(
    program: LaunchProgram, launchers: Mapping[Kernel, Launcher], tensors: DeviceTensors | None = None
) -> Callable[..., tuple[Any, ...]]:
    """A callable that takes the part's inputs positionally and returns the tuple of its outputs. Its attribute
    ``boxed`` takes them in a list, which it empties, so that each can be freed after its last use. The program must
    have been verified. ``tensors`` makes those in memory that PyTorch does not know.

    Safe to call from several threads: each call holds memory of its own.
    """
    if any(map(partial(_makes_results_on_the_host, program), program.steps)):
        keep_freed_memory()
    return python_function(program, launchers, tensors)


def _makes_results_on_the_host(program: LaunchProgram, step: Step) -> bool:
    if not isinstance(step, CallLibrary) or step.out is not None or step.view_of is not None:
        return False
    return any(program.tensors[t].device.type == "cpu" for t in step.results if t >= 0)
