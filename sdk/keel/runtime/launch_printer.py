"""The launch program as a Python function: one of its printers, and the one that runs everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Any

import torch

from keel.errors import KeelError
from keel.loops.ir import Kernel
from keel.plugin import Launcher
from keel.runtime.arena import Arenas, arena, lasting
from keel.runtime.device_tensors import DeviceTensors
from keel.runtime.host_arithmetic import HostArithmetic
from keel.runtime.index_errors import error_buffer, index_error
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
    Source,
    Step,
    StrideOf,
    TakeArena,
)
from keel.runtime.python_source import (
    Expression,
    Function,
    Name,
    Namespace,
    call,
    infix,
    item,
    list_of,
    literal,
    method,
    tuple_of,
)
from keel.schedule.tensor_graph import Slot
from keel.symbols import bounds
from keel.torch_adapter import allocator_on, fast_range, owned
from keel.types import SymType

_INT64 = -(2**63), 2**63 - 1


def python_function(
    program: LaunchProgram, launchers: Mapping[Kernel, Launcher], tensors: DeviceTensors | None = None
) -> Callable[..., tuple[Any, ...]]:
    """A function of the program's inputs, positionally, that returns the tuple of its results.  Its attribute ``boxed``
    takes them in a list, which it empties, so that each can be freed after its last use.

    Safe to call from several threads: each call holds memory of its own.  The program must have been verified.  While a
    profiler is active, each launch is a range in it, with the launch's label. ``tensors`` makes those in memory that
    PyTorch does not know.
    """
    boxed = _Printer(program, launchers, tensors).build()

    def run(*args: Any) -> tuple[Any, ...]:
        results: tuple[Any, ...] = boxed([*args])
        return results

    run.boxed = boxed  # type: ignore[attr-defined]
    return run


class _Printer:
    def __init__(
        self, program: LaunchProgram, launchers: Mapping[Kernel, Launcher], tensors: DeviceTensors | None
    ) -> None:
        self.program, self.launchers, self.tensors = program, launchers, tensors
        self.space = Namespace()
        self.host = HostArithmetic(self.space)
        self.symbols: list[str] = []  # bound by the steps so far
        self.settle = self._settle() if program.checks.sites and not program.checks.at_once else None
        self.pool = Arenas(partial(arena, program, tensors))
        self.out = Function(self.space, [self._variable("args")])

    def build(self) -> FunctionType:
        inputs = self.program.inputs
        self.out.show_ranges(self._variable("args"))
        names = [self._tensor(i) if isinstance(i, int) else self._input(k) for k, i in enumerate(inputs)]
        self.out.unpack(names, self._variable("args"))
        self.out.do(method(self._variable("args"), "clear"))
        self._choose_allocators()
        for step in self.program.steps:
            self._step(step)
        return self.out.build("keel launch list")

    # -- names ---------------------------------------------------------------------------------------

    def _tensor(self, number: int) -> Name:
        return self.space.variable(("tensor", number), f"t{number}")

    def _input(self, position: int) -> Name:
        return self.space.variable(("input", position), f"n{position}")

    def _object(self, value: Any, stem: str) -> Name:
        return self.space.object(value, stem)

    def _key(self) -> Expression:
        return tuple_of(map(self.host.symbol, self.program.arena.key))

    def _in_arena(self) -> list[Name]:
        """What an arena holds, in the order in which it is made."""
        plan, checks = self.program.arena, self.program.checks
        tensors = [*(k.tensor for k in plan.tensors), *(v.tensor for v in plan.views)]
        names = [*map(self._tensor, [*tensors, *(checks.places if checks.at_once else ())])]
        return [*names, self._variable("look")] if checks.at_once else names

    def _variable(self, stem: str) -> Name:
        return self.space.variable(("variable", stem), stem)

    def _settle(self) -> Name:
        """What looks at the checks of a device; the memory that they record in lives as long as the function."""
        checks = self.program.checks
        with lasting():
            device = self.program.tensors[next(iter(checks.places))].device
            if self.tensors is not None:
                memory, settle = self.tensors.error_buffer(checks.sites)
            else:
                memory, settle = error_buffer(checks.sites, device, checks.pinned)
            for t, place in checks.places.items():
                self.space.shared(("tensor", t), f"t{t}", memory[place])
        return self._object(settle, "settle")

    # -- steps ---------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        out = self.out
        match step:
            case BindSymbol():
                self._bind(step)
            case Compute(symbol, value):
                number = self.host.number(value, "int")
                if not _in_int64(value):
                    number = call(self._object(int64, "int64"), [number])
                out.assign(self._symbol(symbol), number)
            case Own(tensor):
                out.assign(self._tensor(tensor), call(self._object(owned, "owned"), [self._tensor(tensor)]))
            case TakeArena():
                out.assign(self._variable("arena"), call(self._object(self.pool.take, "take"), [self._key()]))
                out.unpack(self._in_arena(), self._variable("arena"))
            case GiveArena():
                out.do(call(self._object(self.pool.give, "give"), [self._key(), self._variable("arena")]))
            case Allocate(tensor):
                self._allocate(tensor)
            case Reuse(tensor, dead):
                out.assign(self._tensor(tensor), self._tensor(dead))
                out.delete([self._tensor(dead)])
            case MakeView():
                self._view(step)
            case LaunchKernel(kernel, tensors, symbols, label):
                launcher = self._object(self.launchers[kernel], kernel.name)
                out.do(call(launcher, [*map(self._tensor, tensors), *map(self.host.symbol, symbols)]))
                out.in_range(fast_range, label)
            case CallLibrary():
                self._call(step)
            case LayOut():
                self._lay_out(step)
            case CheckIndices(tensors):
                self._check(tensors)
            case SettleChecks(after):
                assert self.settle is not None
                out.do(call(self.settle, [literal(after)]))
            case Assert(condition, message):
                error = call(self._object(RuntimeError, "error"), [self._object(message, "message")])
                out.raise_unless(self.host.number(condition), error)
            case Free(tensor):
                out.delete([self._tensor(tensor)])
            case Return(results):
                out.give(tuple_of(map(self._result, results)))

    def _symbol(self, symbol: str) -> Name:
        self.symbols.append(symbol)
        return self.host.symbol(symbol)

    def _bind(self, step: BindSymbol) -> None:
        value = self._source(step.source)
        if step.rest != 0:
            value = infix("-", value, self.host.number(step.rest))
        if step.factor != 1:
            value = infix("//", value, self.host.number(step.factor))
        self.out.assign(self._symbol(step.symbol), value)

    def _source(self, source: Source) -> Expression:
        match source:
            case InputNumber(position):
                return self._input(position)
            case SizeOf(tensor, dim):
                return method(self._tensor(tensor), "size", literal(dim))
            case StrideOf(tensor, dim):
                return method(self._tensor(tensor), "stride", literal(dim))

    def _choose_allocators(self) -> None:
        steps = self.program.steps
        for device in dict.fromkeys(self.program.tensors[s.tensor].device for s in steps if isinstance(s, Allocate)):
            choose = self._object(self.tensors.allocator if self.tensors else allocator_on(device), "allocator")
            self.out.assign(self._allocator(device), call(choose))

    def _allocator(self, device: torch.device) -> Name:
        return self.space.variable(("allocate", device), "allocate")

    def _allocate(self, tensor: int) -> None:
        t = self.program.tensors[tensor]
        facts = [self.host.numbers(t.shape), self.host.numbers(t.strides), self._object(t.dtype, "dtype")]
        self.out.assign(self._tensor(tensor), call(self._allocator(t.device), facts))

    def _view(self, step: MakeView) -> None:
        t, base = self.program.tensors[step.tensor], self._tensor(step.base)
        args = [base, self.host.numbers(t.shape), self.host.numbers(t.strides)]
        if step.offset != 0:
            args.append(infix("+", method(base, "storage_offset"), self.host.number(step.offset)))
        self.out.assign(self._tensor(step.tensor), call(self._object(torch.as_strided, "as_strided"), args))

    def _call(self, step: CallLibrary) -> None:
        args = [*map(self._argument, step.args)]
        kwargs = {k: self._argument(v) for k, v in step.kwargs.items()}
        if step.out is not None:
            kwargs["out"] = self._tensor(step.out)
        called = call(self._object(step.function, _stem(step.function)), args, kwargs, self.space)
        match step.results:
            case ():
                self.out.do(called)
            case (result,):
                self.out.assign(self._made(result), called)
            case results:
                self.out.unpack([*map(self._made, results)], called)
        self.out.in_range(fast_range, step.label)

    def _lay_out(self, step: LayOut) -> None:
        type, name = self.program.tensors[step.tensor], self._tensor(step.tensor)
        laid_out = call(
            self._object(fit, "fit"), [name, self.host.numbers(type.shape), self.host.numbers(type.strides)]
        )
        self.out.assign(name, laid_out)
        if step.others:
            others = map(self._tensor, step.others)
            self.out.assign(name, call(self._object(in_own_memory, "in_own_memory"), [name, *others]))

    def _made(self, result: int) -> Name:
        return self._variable("unused") if result < 0 else self._tensor(result)

    def _argument(self, value: Any) -> Expression:
        match value:
            case Slot(number):
                return self._tensor(number)
            case SymType(expr, kind):
                return self.host.number(expr, kind)
            case list() | tuple():
                return list_of(map(self._argument, value))
        if value is None or type(value) in (bool, int):
            return literal(value)
        return self._object(value, "constant")

    def _check(self, tensors: tuple[int, ...]) -> None:
        checks, look = self.program.checks, self._variable("look")
        places = [k for t in tensors for k in range(checks.places[t].start, checks.places[t].stop)]
        raised = self._object(partial(_outside, checks.sites, tuple(self.symbols)), "outside")
        error = call(raised, [look, tuple_of(map(self.host.symbol, self.symbols))])
        self.out.raise_if(infix("or", *(item(look, k) for k in places)), error)

    def _result(self, result: int | SymType | None) -> Expression:
        if isinstance(result, int):
            return self._tensor(result)
        return literal(None) if result is None else self.host.number(result.expr, result.kind)


def _in_int64(value: Any) -> bool:
    """Whether a number is within int64 whatever its symbols are."""
    span = bounds(value)
    return span.low >= _INT64[0] and span.high <= _INT64[1]


def int64(value: int) -> int:
    """``value``; raises the OverflowError of eager PyTorch for what kernels would have modulo 2^64."""
    if _INT64[0] <= value <= _INT64[1]:
        return value
    raise OverflowError(f"int too big to convert: a number that is computed from sizes has {value.bit_length()} bits")


def _stem(function: Any) -> str:
    return str(getattr(function, "__name__", "library")).partition(".")[0]


def _outside(sites: Any, symbols: tuple[str, ...], look: Any, values: tuple[int, ...]) -> Exception:
    return index_error(sites, look, dict(zip(symbols, values, strict=True)))


def fit(tensor: torch.Tensor | None, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor | None:
    """``tensor`` itself if it lies as promised, else a copy that does: a library may choose its own layout.

    None is what a library gives for a result that nobody asked it for.  Raises KeelError[wrong-result] for another
    shape than the promised one, by which kernels would read other memory.
    """
    if tensor is None:
        return None
    if tensor.shape != shape:
        raise KeelError(
            "wrong-result",
            f"A library returned a tensor of shape {list(tensor.shape)}, not {list(shape)}.",
            do="This is a defect of what says its shape: a fake kernel, or a type rule.",
        )
    if tensor.stride() == strides or tensor.numel() == 0:
        return tensor
    if all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    one = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)  # of elements in one place all are the same
    part = tensor[one]
    made = torch.empty_strided(part.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(part)
    return made.expand(tensor.shape)


def in_own_memory(tensor: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
    """``tensor``, or a copy of it if it begins where one of ``others`` does."""
    start = tensor.data_ptr()
    if all(other is None or other.data_ptr() != start for other in others):
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)
