"""Launch programs as steps of a program for the C++ runtime: symbols and tensors become numbers of the whole graph."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from keel.artifact.runtime_calls import Calls
from keel.artifact.runtime_data import ProgramData
from keel.artifact.runtime_kernels import KernelFunctions
from keel.artifact.runtime_packed import packed_call
from keel.artifact.runtime_tables import symbol_names
from keel.loops.symbolic_sizes import format_size
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
    Return,
    Reuse,
    SettleChecks,
    SizeOf,
    Source,
    Step,
    StrideOf,
    TakeArena,
)
from keel.schedule.packed_call import PackedCall
from keel.schedule.tensor_graph import CheckSite, Slot
from keel.serialize.codec import Data, NotSerializable
from keel.types import SymType


class Launches:
    """Writes the steps of the launch program of the part ``name``.

    ``arguments`` are what the part gets: the slot of each tensor, and a SymType with the expression of each number.
    Those in ``held`` are not freed here.
    """

    def __init__(
        self,
        data: ProgramData,
        program: LaunchProgram,
        arguments: Sequence[int | SymType],
        functions: KernelFunctions,
        name: str,
        held: Set[int],
    ) -> None:
        self.data, self.program, self.arguments, self.functions = data, program, arguments, functions
        self.tables, self.name, self.held = data.tables, name, held
        self.scope: dict[str, int] = {}
        self.slots: dict[int, int] = {}
        self.results: list[Any] = []
        device = next((t.device.type for t in program.tensors if t.device.type != "cpu"), "cpu")
        self.calls = Calls(
            self.tables, self.scope, self._slot, lambda t: program.tensors[t].dtype.is_floating_point, device
        )
        self._arena = -1

    def write(self) -> list[Any]:
        """Writes the steps, and returns the results: the slot of a tensor, a SymType with its expression, or None."""
        if self.program.overwritten:
            raise NotSerializable(f"Part {self.name} overwrites an input, which the C++ runtime does not do.")
        for tensor, value in zip(self.program.inputs, self.arguments, strict=True):
            if isinstance(tensor, int) and isinstance(value, int):
                self.slots[tensor] = value
        if self.program.checks.sites and not self.program.checks.at_once:
            self._record()
        for number, step in enumerate(self.program.steps):
            self._step(number, step)
        return self.results

    def _slot(self, tensor: int) -> int:
        return self.slots[tensor]

    def _new(self, tensor: int) -> int:
        self.slots[tensor] = self.data.slot()
        return self.slots[tensor]

    def _type(self, tensor: int) -> int:
        return self.tables.type(self.program.tensors[tensor], self.scope)

    def _symbol(self, name: str) -> int:
        self.scope[name] = self.tables.symbol(name)
        return self.scope[name]

    def _number(self, value: Any) -> int:
        return self.tables.number(value, self.scope)

    def _step(self, number: int, step: Step) -> None:
        match step:
            case BindSymbol(symbol, source, factor, rest):
                by, left = self._number(factor), self._number(rest)
                self.data.do("bind", self._symbol(symbol), self._source(source), by, left)
            case Compute(symbol, value):
                result = self.tables.number(value, self.scope, "int")
                self.data.do("compute", self._symbol(symbol), result)
            case TakeArena():
                self._take_arena()
            case GiveArena():
                self.data.do("give", self._arena)
            case Allocate(tensor):
                self._allocate(tensor)
            case Reuse(tensor, dead):
                self.data.do("reuse", self._new(tensor), self._slot(dead))
            case MakeView(tensor, base, offset):
                self._view(tensor, base, offset)
            case LaunchKernel(kernel, tensors, symbols):
                numbers = [self.scope[s] for s in symbols]
                self.data.do("launch", self.functions.of(kernel, self.scope), [*map(self._slot, tensors)], numbers)
            case CallLibrary():
                self._call(step)
            case LayOut(tensor, others):
                self.data.do("lay_out", self._slot(tensor), self._type(tensor), [*map(self._slot, others)])
            case CheckIndices(tensors):
                places = self.program.checks.places
                self.data.do("check", self._arena, [[places[t].start, places[t].stop] for t in tensors])
            case SettleChecks(after):
                self.data.do("settle", len(self.data.records) - 1, after)
            case Assert(condition, message):
                self.data.do("assert", self._number(condition), message)
            case Free(tensor):
                self._free(tensor)
            case Return(results):
                self.results = [*map(self._result, results)]
            case _:
                raise NotSerializable(f"The C++ runtime has no {type(step).__name__}, step {number} of {self.name}.")

    def _allocate(self, tensor: int) -> None:
        type = self._type(tensor)
        self.data.do("allocate", self._new(tensor), type)

    def _free(self, tensor: int) -> None:
        if (slot := self._slot(tensor)) not in self.held:
            self.data.free(slot)

    def _source(self, source: Source) -> Data:
        match source:
            case InputNumber(position):
                number = self.arguments[position]
                assert isinstance(number, SymType), "launch programs are verified"
                return ["number", number.expr]
            case SizeOf(tensor, dim):
                return ["size", self._slot(tensor), dim]
            case StrideOf(tensor, dim):
                return ["stride", self._slot(tensor), dim]

    def _view(self, tensor: int, base: int, offset: Any) -> None:
        type, of = self.program.tensors[tensor], self.program.tensors[base]
        if type.dtype.itemsize != of.dtype.itemsize:
            raise NotSerializable(f"A view of {of.dtype} as {type.dtype} has no place in {self.name}.")
        behind = self._number(offset * type.dtype.itemsize)
        written, at = self._type(tensor), self._slot(base)
        self.data.do("view", self._new(tensor), written, at, behind)

    def _call(self, step: CallLibrary) -> None:
        if isinstance(step.function, PackedCall):
            return self._packed(step, step.function)
        kwargs = dict(step.kwargs) if step.out is None else {**step.kwargs, "out": Slot(step.out)}
        made = [-1 if r < 0 else self.data.slot() for r in step.results]
        called = self.calls.call(step.function, step.args, kwargs, made)
        viewed = -1 if step.view_of is None else self._slot(step.view_of)
        self.data.do("call", called, viewed)
        self.slots |= {r: slot for r, slot in zip(step.results, made, strict=True) if r >= 0}

    def _packed(self, step: CallLibrary, call: PackedCall) -> None:
        image, *more = (self._slot(v.number) for v in step.args)
        other = more.pop(0) if call.adds else -1
        self.data.packed.append(packed_call(call, len(more), self.tables, self.scope))
        self.data.do("packed", len(self.data.packed) - 1, image, other, more, self._new(step.results[0]))

    def _result(self, result: int | SymType | None) -> Any:
        if isinstance(result, int):
            return self._slot(result)
        if result is None:
            return None
        return SymType(self.tables.number(result.expr, self.scope, result.kind), result.kind)

    # -- the arena ---------------------------------------------------------------------------------------------------

    def _take_arena(self) -> None:
        plan, checks = self.program.arena, self.program.checks
        tensors = []
        for each in plan.tensors:
            type = self._type(each.tensor)
            tensors.append([self._new(each.tensor), type, each.first, each.last])
        views = []
        for view in plan.views:
            offset = self._number(view.offset * self.program.tensors[view.tensor].dtype.itemsize)
            type, base = self._type(view.tensor), self._slot(view.base)
            views.append([self._new(view.tensor), type, base, offset])
        arena: dict[str, Data] = {"tensors": tensors, "views": views}
        if checks.at_once:
            arena |= self._checks()
        self._arena = len(self.data.arenas)
        self.data.arenas.append(arena)
        self.data.do("arena", self._arena)

    def _record(self) -> None:
        """Memory that kernels of a device record wrong indices in, and the host reads."""
        if not self.program.checks.pinned:
            raise NotSerializable(f"The device of part {self.name} cannot write to memory of the host, for its checks.")
        self.data.records.append(self._checks())
        self.data.do("record", len(self.data.records) - 1)

    def _checks(self) -> dict[str, Data]:
        checks = self.program.checks
        places = [self._place(t, at) for t, at in checks.places.items()]
        return {"sites": [*map(self._site, checks.sites)], "places": places}

    def _place(self, tensor: int, at: slice) -> Data:
        type = self._type(tensor)
        return [self._new(tensor), type, at.start]

    def _site(self, site: CheckSite) -> Data:
        """What messages say of a check: the operator, the user's line, and the bound if it is known by now."""
        known = all(name in self.scope for name in symbol_names([site.bound]))
        bound = self._number(site.bound) if known else format_size(site.bound)
        return [site.operator, site.line or "", bound, site.wrap]
