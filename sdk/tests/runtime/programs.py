"""Launch programs of functions, and the wrong programs that lie next to one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

import keel_interp
from keel.loop_level import schedule_part
from keel.runtime.launch_builder import build_program, slots, tensors_of
from keel.runtime.launch_printer import python_function
from keel.runtime.launch_program import (
    Allocate,
    BindSymbol,
    CallLibrary,
    Compute,
    Free,
    GiveArena,
    LaunchKernel,
    LaunchProgram,
    LayOut,
    MakeView,
    Return,
    Reuse,
    Step,
    TakeArena,
)
from keel.runtime.launch_verify import verify_program
from keel.schedule.schedule import Schedule
from keel.torch_adapter import tidied

from ..line import trace


def schedule_of(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False) -> Schedule:
    """What the interpreter's target makes of a function."""
    return schedule_part(keel_interp.target, tidied(trace(fn, *inputs, symbolic=symbolic), "inference").gm)


def program_of(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False, arena: bool = True) -> LaunchProgram:
    """The same as a launch program, which is right."""
    program = build_program(schedule_of(fn, *inputs, symbolic=symbolic), arena)
    verify_program(program)
    return program


def function_of(program: LaunchProgram) -> Callable[..., tuple[Any, ...]]:
    """The program as a function, its kernels interpreted."""
    return python_function(program, {k: keel_interp.launcher(str(k)) for k in program.kernels()})


def most_memory(program: LaunchProgram) -> int:
    """The most bytes that tensors of this program have at a time, where all sizes are known: its inputs do not count,
    nor what a library needs besides its results.
    """
    inside: dict[int, set[int]] = {}  # of each memory: the names by which it is held
    memory: dict[int, int] = {}
    size: dict[int, int] = {}
    most = 0

    def make(tensor: int, base: int | None = None) -> None:
        memory[tensor] = tensor if base is None else memory.get(base, base)
        inside.setdefault(memory[tensor], set()).add(tensor)
        type = program.tensors[tensor]
        size.setdefault(memory[tensor], 0 if base is not None else int(type.extent) * type.dtype.itemsize)

    for step in program.steps:
        match step:
            case Allocate(tensor):
                make(tensor)
            case Reuse(tensor, dead):
                inside[memory[dead]].remove(dead)
                make(tensor)
            case MakeView(tensor, base):
                make(tensor, base)
            case CallLibrary(results=results, view_of=viewed):
                for result in results:
                    make(result, viewed)
            case Free(tensor) if tensor in memory:
                inside[memory[tensor]].remove(tensor)
        most = max(most, sum(size[m] for m, names in inside.items() if names))
    return most


def without(program: LaunchProgram, number: int) -> LaunchProgram:
    """The program less a step."""
    return replace(program, steps=(*program.steps[:number], *program.steps[number + 1 :]))


def instead(program: LaunchProgram, number: int, step: Step) -> LaunchProgram:
    """The program with another step in that place."""
    return replace(program, steps=(*program.steps[:number], step, *program.steps[number + 1 :]))


def dropped(program: LaunchProgram) -> Iterator[LaunchProgram]:
    """The program less each step that another one, which stays, depends on."""
    for k, step in enumerate(program.steps):
        match step:
            case TakeArena() | GiveArena() | Return():
                needed = True
            case BindSymbol(symbol) | Compute(symbol):
                needed = symbol in program.arena.key or any(
                    symbol in symbols_of_step(program, s) for s in program.steps[k + 1 :]
                )
            case _:
                needed = any(depends(program, k, s) for s in program.steps[k + 1 :])
        if needed:
            yield without(program, k)


def swapped(program: LaunchProgram) -> Iterator[LaunchProgram]:
    """The program with each two neighbors of which one needs the other in the other order."""
    for k, (one, two) in enumerate(zip(program.steps, program.steps[1:], strict=False)):
        match two:
            case Return():
                bound = True
            case GiveArena():
                bound = isinstance(one, TakeArena)
            case Free():
                bound = two.tensor in tensors_of(one)
            case Reuse():
                bound = two.dead in tensors_of(one)
            case _:
                bound = depends(program, k, two)
        if bound:
            yield replace(program, steps=(*program.steps[:k], two, one, *program.steps[k + 2 :]))


def depends(program: LaunchProgram, number: int, later: Step) -> bool:
    """Whether ``later`` uses a tensor that a step makes, or reads one that it is the first to write. What is not
    written yet may be viewed, freed and reused.
    """
    step, read = program.steps[number], needs_of(later)
    match step:
        case Allocate(tensor) | Reuse(tensor) | MakeView(tensor):
            return tensor in tensors_of(later) or tensor in read
        case CallLibrary(results=results, out=None):
            return not read.isdisjoint(t for t in results if t >= 0)
        case CallLibrary(out=int(out)):
            written = {out}
        case LaunchKernel(kernel, tensors):
            written = {t for t, b in zip(tensors, kernel.buffers, strict=True) if b.role == "out"}
        case _:
            return False
    if isinstance(later, MakeView | Free | Reuse):
        return False
    return not read.isdisjoint(written - written_before(program, number))


def written_before(program: LaunchProgram, number: int) -> set[int]:
    """The tensors that kernels and libraries write before a step."""
    found: set[int] = set()
    for step in program.steps[:number]:
        match step:
            case LaunchKernel(kernel, tensors):
                found |= {t for t, b in zip(tensors, kernel.buffers, strict=True) if b.role != "in"}
            case CallLibrary(out=int(out)):
                found.add(out)
    return found


def needs_of(step: Step) -> set[int]:
    """The tensors that a step reads, or whose memory it needs."""
    match step:
        case LaunchKernel(kernel, tensors):
            return {t for t, b in zip(tensors, kernel.buffers, strict=True) if b.role != "out"}
        case CallLibrary():
            return set(slots(step))
        case MakeView(base=base):
            return {base}
        case Return(results):
            return {r for r in results if isinstance(r, int)}
        case BindSymbol():
            return set(tensors_of(step))
        case LayOut(tensor) | Free(tensor) | Reuse(dead=tensor):
            return {tensor}
    return set()


def symbols_of_step(program: LaunchProgram, step: Step) -> set[str]:
    match step:
        case Allocate(tensor) | Reuse(tensor):
            return set(program.tensors[tensor].symbols)
        case LaunchKernel(symbols=symbols):
            return set(symbols)
    return set()


def renamed(program: LaunchProgram, draw: random.Random) -> Iterator[LaunchProgram]:
    """The program with a tensor that a step reads replaced by one that is not there yet, or never."""
    for k, step in enumerate(program.steps):
        known = {t for s in program.steps[:k] for t in tensors_of(s)}
        known |= {i for i in program.inputs if isinstance(i, int)}
        known |= {t.tensor for t in (*program.arena.tensors, *program.arena.views)} | program.checks.places.keys()
        unknown = [t for t in range(len(program.tensors) + 2) if t not in known and t not in tensors_of(step)]
        other = draw.choice(unknown)
        match step:
            case LaunchKernel(tensors=tensors):
                place = draw.randrange(len(tensors))
                yield instead(program, k, replace(step, tensors=(*tensors[:place], other, *tensors[place + 1 :])))
            case Free() | LayOut():
                yield instead(program, k, replace(step, tensor=other))
            case Reuse():
                yield instead(program, k, replace(step, dead=other))
            case MakeView():
                yield instead(program, k, replace(step, base=other))
            case Return(results) if any(isinstance(r, int) for r in results):
                place = draw.choice([p for p, r in enumerate(results) if isinstance(r, int)])
                yield instead(program, k, Return((*results[:place], other, *results[place + 1 :])))


def matrices(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(shape) for shape in shapes)
