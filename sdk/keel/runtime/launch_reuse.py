"""Tensors of a launch program that take over a dead tensor instead of being allocated: a name costs the host nothing.

A dead tensor was allocated here, and no tensor that lies in its memory is used any more. It serves the next tensor of
its type. The peak of memory stays as it was: a large tensor, or one of symbolic size, is only taken over if nothing
else needs memory between its end and the allocation. A smaller one may wait longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from keel.runtime.launch_program import Allocate, CallLibrary, Free, LayOut, MakeView, Reuse, Step
from keel.types import TensorType

LARGE = 2**20
"""The size in bytes from which memory is not held for a later tensor."""


def with_reuse(steps: Sequence[Step], types: Sequence[TensorType]) -> list[Step]:
    """The steps, which free tensors after their last use, with ``Reuse`` in the place of allocations where it can
    be.
    """
    memories = _Memories(types)
    changed = [memories.after(step) for step in steps]
    reused = {step.dead for step in changed if isinstance(step, Reuse)}
    return [step for step in changed if not (isinstance(step, Free) and step.tensor in reused)]


class _Memories:
    """What lies in the memory that was allocated by the steps so far."""

    def __init__(self, types: Sequence[TensorType]):
        self.types = types
        self.memory: dict[int, int] = {}  # of each tensor made here: the one that it lies in
        self.alive: dict[int, set[int]] = {}  # of each allocated tensor: those in it that are not freed
        self.small = defaultdict[TensorType, list[int]](list)  # dead tensors that may wait
        self.large = defaultdict[TensorType, list[int]](list)

    def after(self, step: Step) -> Step:
        """The step, or what takes its place."""
        match step:
            case Allocate(tensor):
                return self._allocated(tensor)
            case MakeView(tensor, base):
                self._lies_in(tensor, base)
            case CallLibrary(results=results, view_of=viewed):
                self._memory_is_needed()
                if viewed is not None:
                    for result in results:
                        self._lies_in(result, viewed)
            case LayOut():
                self._memory_is_needed()  # a library's result may be copied
            case Free(tensor):
                self._freed(tensor)
        return step

    def _allocated(self, tensor: int) -> Step:
        self.memory[tensor], self.alive[tensor] = tensor, {tensor}
        if dead := self._of(tensor)[self.types[tensor]]:
            return Reuse(tensor, dead.pop())
        self._memory_is_needed()
        return Allocate(tensor)

    def _of(self, tensor: int) -> defaultdict[TensorType, list[int]]:
        """The dead tensors among which are those of this tensor's type."""
        extent, item = self.types[tensor].extent, self.types[tensor].dtype.itemsize
        return self.small if isinstance(extent, int) and extent * item < LARGE else self.large

    def _lies_in(self, tensor: int, base: int) -> None:
        memory = self.memory[tensor] = self.memory.get(base, base)
        if memory in self.alive:
            self.alive[memory].add(tensor)

    def _freed(self, tensor: int) -> None:
        memory = self.memory.get(tensor, tensor)
        alive = self.alive.get(memory, set())
        alive.discard(tensor)
        if memory in self.alive and not alive:
            self._of(memory)[self.types[memory]].append(memory)

    def _memory_is_needed(self) -> None:
        self.large.clear()
