"""The work of compiled parts, launch by launch: bytes and floating-point operations, and the least time that they take
by a data sheet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from keel.cost import Cost
from keel.cost.work import size_of, value_of, work_of
from keel.graph.calls import call_of, types_of
from keel.graph.leaf_calls import leaf_calls
from keel.graph.size_hints import typical_sizes
from keel.graph.tensor_devices import devices_of
from keel.loops.kernel_work import kernel_work
from keel.runtime.accelerators import accelerators
from keel.runtime.launch_builder import slots
from keel.runtime.launch_program import CallLibrary, Compute, LaunchKernel, LaunchProgram
from keel.runtime.part_interface import BuiltPart
from keel.schedule.packed_call import PackedCall
from keel.symbols import evaluate, free_symbols
from keel.types import Dim, TensorType

Flops = Mapping[torch.dtype, float]
"""Floating-point operations by dtype."""


@dataclass(frozen=True)
class Work:
    """``bytes`` that are read and written, and floating-point operations."""

    bytes: float
    flops: Flops = field(default_factory=dict)


@dataclass(frozen=True)
class Roof:
    """The least ``seconds`` of some work by a data sheet, and whether ``memory`` or ``arithmetic`` needs them."""

    seconds: float
    bound: str


def roof(work: Work, sheet: Cost) -> Roof:
    """The roofline of a data sheet: the larger of the time of memory traffic and that of arithmetic. A dtype without a
    rate runs at the slowest rate of the sheet.
    """
    slowest = min(sheet.flops.values(), default=sheet.scalars)
    arithmetic = sum(n / (sheet.flops.get(dtype) or slowest) for dtype, n in work.flops.items())
    memory = work.bytes / sheet.bandwidth
    return Roof(arithmetic, "arithmetic") if arithmetic > memory else Roof(memory, "memory")


def total(works: Iterable[Work]) -> Work:
    """The sum of some work."""
    several = [*works]
    flops: Counter[torch.dtype] = Counter()
    for work in several:
        flops.update(work.flops)
    return Work(sum(work.bytes for work in several), dict(flops))


@dataclass(frozen=True)
class Launch:
    """A kernel or library call that a part launches: the range that profilers show, and its work. ``is_move`` says that
    it computes nothing, so that it only copies or converts tensors.
    """

    label: str
    work: Work
    is_move: bool = False


@dataclass(frozen=True)
class PartWork:
    """A part of a graph, by the range that profilers show. It ``is_on_host`` if its tensors are not on an
    accelerator. ``launches`` are those of a loop target, in order. ``calls`` is the work of the calls by operator.
    """

    label: str
    backend: str
    work: Work
    is_on_host: bool = True
    launches: tuple[Launch, ...] | None = None
    calls: Mapping[str, tuple[Work, ...]] = field(default_factory=dict)


def part_work(part: BuiltPart) -> PartWork:
    """The work of a part that its backend has compiled."""
    nodes = {n.name: n for n in part.graph.graph.nodes}
    sizes = typical_sizes(part.graph.graph)
    flops = {name: _flops(node, sizes) for name, node in nodes.items() if node.op == "call_function"}
    calls: dict[str, tuple[Work, ...]] = {}
    for name, node in nodes.items():
        if (call := call_of(node)) is not None:
            one = work_of(call, sizes)
            work = Work(sum(one.read) + sum(one.written), flops[name])
            calls[call.name] = (*calls.get(call.name, ()), work)
    ends = [*(part.graph.inputs), *(part.graph.outputs)]
    passed = sum(bytes_of(nodes[name], sizes) for name in ends if name in nodes)
    through = Work(passed, total(Work(0.0, each) for each in flops.values()).flops)
    program = part.loop_part.program if part.loop_part is not None else None
    launches = None if program is None else tuple(_launches(program, nodes, sizes, flops))
    on_host = not accelerators(devices_of(part.graph.graph))
    return PartWork(part.interface.label, part.interface.promised.owner, through, on_host, launches, calls)


def _launches(
    program: LaunchProgram, nodes: Mapping[str, fx.Node], sizes: Mapping[str, int], flops: Mapping[str, Flops]
) -> Iterator[Launch]:
    known, left = dict(sizes), dict(flops)
    hint = _hint(known)
    for step in program.steps:
        match step:
            case Compute(symbol, value):
                known[symbol] = hint(value)
            case LaunchKernel(kernel, _, _, label):
                work = kernel_work(kernel, hint)
                floats = {d: n for d, n in work.operations.items() if d.is_floating_point or d.is_complex}
                yield Launch(label, Work(work.bytes, floats), not work.operations)
            case CallLibrary():
                tensors = [*slots(step), *(t for t in step.results if t >= 0)]
                moved = sum(size_of(program.tensors[t], known) for t in tensors)
                node = nodes.get(step.label.rpartition(": ")[2])
                done = {} if node is None else _contraction(node, _behind(step.function), left)
                yield Launch(step.label, Work(moved, done))


def _behind(function: Any) -> int:
    """The number of calls behind a contraction that a library call takes over. It has the name of the last of them."""
    if not isinstance(function, PackedCall):
        return 0
    return len(function.folded) + function.adds + (function.then is not None)


def _contraction(node: fx.Node, behind: int, left: dict[str, Flops]) -> Flops:
    """Takes the operations of the contraction that comes ``behind`` calls before a node."""
    if behind == 0:
        return left.pop(node.name, {})
    return next((flops for before in node.all_input_nodes if (flops := _contraction(before, behind - 1, left))), {})


def _hint(known: Mapping[str, int]) -> Callable[[Dim], int]:
    """Sizes by the values of symbols, and for unknown symbols by typical ones."""

    def hint(dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        try:
            return int(evaluate(dim, {s: known[s] for s in free_symbols(dim)}))
        except (ArithmeticError, KeyError, ValueError):
            return value_of(dim, known)

    return hint


def _flops(node: fx.Node, sizes: Mapping[str, int]) -> Flops:
    """The floating-point operations of a call's contractions by dtype; those of its pieces if it is a composite."""
    call = call_of(node)
    works = [] if call is None else [work_of(each, sizes) for each in (call, *leaf_calls(call, sizes))]
    return total(Work(0.0, {work.dtype: work.flops}) for work in works if work.flops).flops


def bytes_of(node: fx.Node, sizes: Mapping[str, int]) -> float:
    """The bytes of the tensors that a node makes."""
    return sum(size_of(t, sizes) for t in types_of(node.meta.get("val")) if isinstance(t, TensorType))
