"""What must hold of every launch program, checked in one pass over its steps before anything is printed or run.

A name is defined before it is used and defined once. Nothing is read before it is written, used after it is freed or
reused, or used while its memory in the arena may belong to another tensor. What a library returns has its shape checked
before anything else is done with it than to read sizes off it. No input is written to, but for those that the program
overwrites and returns, and those that it has made its own. No result lies in memory that the next call will overwrite.
A kernel gets as many tensors as it has buffers, of their dtypes, and no smaller. The program is a straight line: what
holds at a step holds on every path to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from keel.errors import KeelError
from keel.runtime.launch_builder import slots, tensors_of
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
    StrideOf,
    TakeArena,
)
from keel.types import Dim, SymType, TensorType, as_dim, leaves


def verify_program(program: LaunchProgram) -> None:
    """Raises KeelError[bad-graph] that names the step and what is wrong with it.  Time linear in the program."""
    _Verifier(program).run()


class _Wrong(Exception):
    """A sentence on what is wrong with a step."""


class _Verifier:
    def __init__(self, program: LaunchProgram):
        self.program = program
        self.inputs = {i for i in program.inputs if isinstance(i, int)}
        self.memory = {t: t for t in self.inputs}  # of each tensor: the one whose memory it lies in
        self.written = set(self.inputs)  # memory that holds values
        self.usable = set(self.inputs)  # tensors that a step may name
        self.inside = {t: {t} for t in self.inputs}  # of each memory: the usable tensors that lie in it
        self.owned: set[int] = set()  # inputs that may be written to
        self.allocated: set[int] = set()
        self.freed: set[int] = set()
        self.unchecked: set[int] = set()  # what a library returned, in a shape that nobody has seen
        self.returned: dict[int, set[int]] = {}  # what libraries returned, which may be one of these tensors
        self.symbols: set[str] = set()
        self.lives = {k.tensor: (k.first, k.last) for k in program.arena.tensors}
        self.arena: tuple[int, ...] = (*self.lives, *(v.tensor for v in program.arena.views))
        if program.checks.at_once:
            self.arena += tuple(program.checks.places)
        else:
            self._define(program.checks.places, written=True)
        self.needs: dict[int, tuple[str, ...]] = {}  # the symbols of kernels, by id: to find them takes a walk
        self.taken = self.ended = False

    def run(self) -> None:
        steps = self.program.steps
        for k, step in enumerate(steps):
            try:
                if self.ended:
                    raise _Wrong("comes after the end")
                self._in_life(k, step)
                self._step(step)
            except _Wrong as wrong:
                raise self._error(f"Step {k} of a launch program, {_shown(step)}, {wrong}.") from None
        if not self.ended:
            raise self._error("A launch program does not return.")

    def _error(self, what: str) -> KeelError:
        return KeelError(
            "bad-graph",
            what,
            do="This is a defect of Keel, not of a model or a backend. Please report it with KEEL_DUMP=dir.",
        )

    def _step(self, step: Step) -> None:
        match step:
            case BindSymbol():
                self._bind(step)
            case Compute(symbol, value):
                self._known(_symbols([value]))
                self._name(symbol)
            case Own(tensor):
                self._own(tensor)
            case TakeArena():
                self._take()
            case GiveArena():
                self._give()
            case Allocate(tensor):
                self._allocate(tensor)
            case Reuse(tensor, dead):
                self._reuse(tensor, dead)
            case MakeView():
                self._view(step.tensor, step.base, step.offset)
            case LaunchKernel():
                self._launch(step)
            case CallLibrary():
                self._call(step)
            case LayOut():
                self._lay_out(step)
            case CheckIndices(tensors):
                for t in tensors:
                    self._checked(t)
            case SettleChecks():
                if self.program.checks.at_once or not self.program.checks.sites:
                    raise _Wrong("looks at checks that no device records")
            case Assert(condition):
                self._known(_symbols([condition]))
            case Free(tensor):
                self._free(tensor)
            case Return(results):
                self._end(results)

    # -- names ---------------------------------------------------------------------------------------

    def _type(self, tensor: int) -> TensorType:
        if not 0 <= tensor < len(self.program.tensors):
            raise _Wrong(f"names t{tensor}, which is not a tensor")
        return self.program.tensors[tensor]

    def _define(self, tensors: Iterable[int], written: bool = False) -> None:
        for t in tensors:
            self._type(t)
            if t in self.usable or t in self.freed:
                raise _Wrong(f"makes t{t}, which is there already")
            self.usable.add(t)
            self.inside.setdefault(self.memory.setdefault(t, t), set()).add(t)
            if written:
                self.written.add(self.memory[t])

    def _use(self, tensor: int) -> int:
        """The memory of a tensor that may be named here."""
        self._type(tensor)
        if tensor in self.freed:
            raise _Wrong(f"uses t{tensor} after it is freed")
        if tensor not in self.usable:
            raise _Wrong(f"uses t{tensor} before it is made")
        return self.memory[tensor]

    def _read(self, tensor: int) -> None:
        if self._use(tensor) not in self.written:
            raise _Wrong(f"reads t{tensor} before it is written")
        self._require_checked(tensor)

    def _require_checked(self, tensor: int) -> None:
        if tensor in self.unchecked:
            raise _Wrong(f"uses t{tensor}, which a library returned, before its shape is checked")

    def _write(self, tensor: int) -> None:
        memory = self._use(tensor)
        if memory in self.inputs and memory not in self.owned and tensor not in self.program.overwritten:
            raise _Wrong(f"writes to t{tensor}, which lies in the input t{memory}")
        if self.returned.get(memory):
            raise _Wrong(f"writes to t{tensor}, which may be an argument or another result of a library")
        self.written.add(memory)

    def _known(self, symbols: Iterable[str]) -> None:
        if missing := sorted(set(symbols) - self.symbols):
            raise _Wrong(f"needs the size {missing[0]}, which no earlier step binds")

    # -- symbols -------------------------------------------------------------------------------------

    def _bind(self, step: BindSymbol) -> None:
        match step.source:
            case InputNumber(position):
                inputs = self.program.inputs
                if not 0 <= position < len(inputs) or not isinstance(inputs[position], SymType):
                    raise _Wrong(f"reads input {position}, which is not a number")
            case SizeOf(tensor, dim) | StrideOf(tensor, dim):
                self._use(tensor)
                if not 0 <= dim < self._type(tensor).rank:
                    raise _Wrong(f"reads dimension {dim} of t{tensor}, which has {self._type(tensor).rank}")
        if step.factor == 0:
            raise _Wrong("divides by zero")
        self._known(_symbols([step.factor, step.rest]))
        self._name(step.symbol)

    def _name(self, symbol: str) -> None:
        if symbol in self.symbols:
            raise _Wrong(f"binds {symbol}, which is bound already")
        self.symbols.add(symbol)

    # -- memory --------------------------------------------------------------------------------------

    def _take(self) -> None:
        if self.taken:
            raise _Wrong("takes a second arena")
        self.taken = True
        plan = self.program.arena
        self._known(plan.key)
        for retained in plan.tensors:
            self._within(self._type(retained.tensor).symbols, plan.key)
            self._define([retained.tensor])
        for view in plan.views:
            self._within((*self._type(view.tensor).symbols, *_symbols([view.offset])), plan.key)
            if view.base not in self.lives:
                raise _Wrong(f"has t{view.tensor} in t{view.base}, which is not kept")
            self._view(view.tensor, view.base, view.offset)
        if self.program.checks.at_once:
            self._define(self.program.checks.places, written=True)

    def _within(self, symbols: Iterable[str], key: tuple[str, ...]) -> None:
        if missing := sorted(set(symbols) - set(key)):
            raise _Wrong(f"depends on the size {missing[0]}, for which no arenas are kept apart")

    def _give(self) -> None:
        if not self.taken:
            raise _Wrong("gives back what was not taken")
        gone = {self.memory[t] for t in self.arena if t in self.memory}
        for t in [t for t in self.usable if self.memory[t] in gone]:
            self._drop(t)

    def _in_life(self, number: int, step: Step) -> None:
        """Whether the memory of kept tensors that the step touches is theirs at that time."""
        if not self.lives:
            return
        for t in tensors_of(step):
            memory = self.memory.get(t, t)
            first, last = self.lives.get(memory, (number, number))
            if not first <= number <= last:
                raise _Wrong(f"uses t{t}, whose memory is its own only from step {first} to {last}")

    def _view(self, tensor: int, base: int, offset: Dim) -> None:
        memory = self._use(base)
        self._require_checked(base)
        type, base_type = self._type(tensor), self._type(memory)
        self._known((*type.symbols, *_symbols([offset])))
        # In bytes: the elements of a view may be the parts of complex ones.
        have, need = base_type.extent * base_type.dtype.itemsize, (offset + type.extent) * type.dtype.itemsize
        if memory not in self.inputs and type.extent != 0 and _below(as_dim(have), as_dim(need)):
            raise _Wrong(f"views {offset} + {type.extent} elements of t{base}, whose memory has {base_type.extent}")
        self.memory[tensor] = memory
        self._define([tensor])

    def _free(self, tensor: int) -> None:
        self._use(tensor)
        if tensor in self.arena:
            raise _Wrong(f"frees t{tensor}, which lies in the arena")
        self._drop(tensor)

    def _drop(self, tensor: int) -> None:
        self.usable.remove(tensor)
        self.inside[self.memory[tensor]].discard(tensor)
        self.freed.add(tensor)

    def _own(self, tensor: int) -> None:
        self._use(tensor)
        if tensor not in self.inputs:
            raise _Wrong(f"makes t{tensor} its own, which is not an input")
        if views := sorted(self.inside[tensor] - {tensor}):
            raise _Wrong(f"makes t{tensor} its own, in which t{views[0]} lies")
        self.owned.add(tensor)

    def _allocate(self, tensor: int) -> None:
        self._known(self._type(tensor).symbols)
        self._define([tensor])
        self.allocated.add(tensor)

    def _reuse(self, tensor: int, dead: int) -> None:
        self._use(dead)
        if dead not in self.allocated:
            raise _Wrong(f"reuses t{dead}, which is not allocated here")
        if self._type(tensor) != self._type(dead):
            raise _Wrong(f"reuses t{dead} of {self._type(dead)} as t{tensor} of {self._type(tensor)}")
        if views := sorted(self.inside[dead] - {dead}):
            raise _Wrong(f"reuses t{dead}, in which t{views[0]} lies")
        self._drop(dead)
        self._allocate(tensor)

    # -- work ----------------------------------------------------------------------------------------

    def _launch(self, step: LaunchKernel) -> None:
        kernel = step.kernel
        if len(step.tensors) != len(kernel.buffers):
            raise _Wrong(f"gives {len(step.tensors)} tensors to a kernel of {len(kernel.buffers)} buffers")
        if id(kernel) not in self.needs:
            self.needs[id(kernel)] = kernel.symbols
        if step.symbols != self.needs[id(kernel)]:
            raise _Wrong(f"gives the numbers {step.symbols} to a kernel of {self.needs[id(kernel)]}")
        self._known(step.symbols)
        for t, buffer in zip(step.tensors, kernel.buffers, strict=True):
            type = self._type(t)
            if type.dtype != buffer.dtype:
                raise _Wrong(f"gives t{t} of {type.dtype} as {buffer.name}, which holds {buffer.dtype}")
            if _below(type.extent, buffer.size):
                raise _Wrong(f"gives t{t} of {type.extent} elements as {buffer.name}, which has {buffer.size}")
            if buffer.role != "out":
                self._read(t)
        for t, buffer in zip(step.tensors, kernel.buffers, strict=True):
            if buffer.role != "in":
                self._write(t)

    def _call(self, step: CallLibrary) -> None:
        for t in slots(step):
            self._read(t)
        arguments = leaves((*step.args, *step.kwargs.values()))
        self._known(_symbols(v.expr for v in arguments if isinstance(v, SymType)))
        if step.out is not None:
            if step.results:
                raise _Wrong("both fills a tensor and returns some")
            self._write(step.out)
        made = [t for t in step.results if t >= 0]
        if step.view_of is not None:
            memory = self._use(step.view_of)
            self.memory |= dict.fromkeys(made, memory)
        self._define(made, written=True)
        self.unchecked |= set(made)
        self.returned |= {t: {*slots(step), *made} - {t} for t in made}

    def _lay_out(self, step: LayOut) -> None:
        self._use(step.tensor)
        for other in step.others:
            self._use(other)
        self._known(self._type(step.tensor).symbols)
        self.unchecked.discard(step.tensor)
        self.returned.get(step.tensor, set()).difference_update(step.others)

    def _checked(self, tensor: int) -> None:
        self._use(tensor)
        if tensor not in self.program.checks.places or not self.program.checks.at_once:
            raise _Wrong(f"looks at t{tensor}, in which nothing is recorded")

    def _end(self, results: Sequence[int | SymType | None]) -> None:
        for r in results:
            if isinstance(r, int):
                self._read(r)
                if self.memory[r] in self.lives:
                    raise _Wrong(f"returns t{r}, which lies in the arena")
            elif isinstance(r, SymType):
                self._known(_symbols([r.expr]))
        if lost := sorted(self.program.overwritten.difference(r for r in results if isinstance(r, int))):
            raise _Wrong(f"does not return t{lost[0]}, which it may overwrite")
        if self.taken and not any(isinstance(s, GiveArena) for s in self.program.steps):
            raise _Wrong("ends without giving the arena back")
        self.ended = True


def _below(have: Dim, need: Dim) -> bool:
    """Whether ``have`` is surely less than ``need``; where sizes are not known it may be neither."""
    if isinstance(have, int) and isinstance(need, int):
        return have < need
    if have == need:
        return False
    difference = as_dim(sympy.expand(have - need))
    return isinstance(difference, int) and difference < 0


def _symbols(numbers: Iterable[Any]) -> set[str]:
    return {s.name for n in numbers for s in getattr(n, "free_symbols", ())}


def _shown(step: Step) -> str:
    if isinstance(step, LaunchKernel):
        return f"LaunchKernel({step.kernel.name}, {step.tensors})"
    return repr(step)
