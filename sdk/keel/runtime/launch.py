"""A loop-level part as one flat function: the schedule becomes a launch program, which is verified and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keel.loops.ir import Kernel
from keel.plugin import Launcher
from keel.runtime.launch_builder import build_program
from keel.runtime.launch_printer import python_function
from keel.runtime.launch_verify import verify_program
from keel.schedule.schedule import Schedule


def program(schedule: Schedule, launchers: Mapping[Kernel, Launcher], arena: bool) -> Callable[..., tuple[Any, ...]]:
    """A callable that takes the part's inputs positionally and returns the tuple of its outputs. Its attribute
    ``boxed`` takes them in a list, which it empties, so that each can be freed after its last use. For ``arena`` see
    ``LoopTarget``.

    Safe to call from several threads: each call holds memory of its own.
    """
    made = build_program(schedule, arena)
    verify_program(made)
    return python_function(made, launchers)
