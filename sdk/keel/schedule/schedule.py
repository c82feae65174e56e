"""The schedule of a part: kernels and library calls in order, each buffer a numbered tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from keel.fuel import Fuel
from keel.loops.index import Axis, Index, flatten, index
from keel.loops.ir import Kernel, Scan, Store
from keel.plugin import Limits
from keel.schedule.emit import Emitter, Group
from keel.schedule.fuse import Fusion, fuse
from keel.schedule.horizontal_fusion import fuse_horizontally
from keel.schedule.in_place import write_in_place
from keel.schedule.kernel_launch import KernelLaunch, Step
from keel.schedule.loop_order import canonicalize
from keel.schedule.read_types import type_as_read
from keel.schedule.split_ranges import split_ranges
from keel.schedule.split_reduction import split_reduction
from keel.schedule.tensor_graph import ExternCall, LoopNode, Tensor, TensorGraph
from keel.types import Dim, TensorType

Hint = Callable[[Dim], int]


@dataclass(frozen=True)
class Schedule:
    """The launches in order, their tensors, the inputs that they overwrite with their new contents, and the donated
    inputs that they overwrite with other results.
    """

    tensors: TensorGraph
    steps: tuple[Step, ...]
    overwritten: frozenset[int] = frozenset()
    donated: frozenset[int] = frozenset()

    def kernels(self) -> tuple[Kernel, ...]:
        """Returns the distinct kernels, in order of first use."""
        return tuple(dict.fromkeys(s.kernel for s in self.steps if isinstance(s, KernelLaunch)))

    def as_json(self, hint: Hint) -> list[dict[str, Any]]:
        """Returns the launches in order, as KEEL_DUMP writes them; a kernel's bytes are the sizes of its buffers."""
        return [
            {"kind": "extern", "name": s.name}
            if isinstance(s, ExternCall)
            else {
                "kind": "kernel",
                "name": s.kernel.name,
                "bytes": s.traffic(hint),
            }
            for s in self.steps
        ]

    def traffic(self, hint: Hint) -> int:
        """Returns the bytes that kernels read and write, each buffer once per launch."""
        return sum(step.get("bytes", 0) for step in self.as_json(hint))


def schedule(
    tensors: TensorGraph,
    limits: Limits,
    hint: Hint,
    fuel: Fuel | None = None,
    overwrites: Mapping[int, int] = MappingProxyType({}),
    donated: frozenset[int] = frozenset(),
) -> Schedule:
    """Fuses, emits and orders the kernels of a part. ``hint`` estimates symbolic sizes. ``overwrites`` maps numbers of
    outputs to the number of the input that they may be written to. Any result may be written over the inputs
    ``donated``.
    """
    fuel = fuel or Fuel()
    fusion = fuse(tensors, limits, hint, fuel)
    steps: list[Step] = []
    for step in fusion.steps:
        match step:
            case ExternCall():
                steps.append(step)
            case Group():
                if step.stored:
                    steps += _launches(tensors, limits, hint, _kernel(tensors, fusion, _of_group(step)))
            case LoopNode():
                for emit in _alone(tensors, step):
                    steps += _launches(tensors, limits, hint, _kernel(tensors, fusion, emit))
    fused = fuse_horizontally(tensors, steps, limits, hint, fuel)
    return Schedule(*write_in_place(*type_as_read(tensors, fused), fuel, overwrites, donated))


def _of_group(group: Group) -> Callable[[Emitter], Kernel]:
    return lambda emitter: emitter.group(group)


def _kernel(tensors: TensorGraph, fusion: Fusion, emit: Callable[[Emitter], Kernel]) -> KernelLaunch:
    emitter = Emitter(tensors, fusion.producers, fusion.inlined.__contains__)
    kernel = emit(emitter)
    nodes = emitter.computed.values()
    origins = dict.fromkeys(("" if n.definition.is_view else n.operator, n.module) for n in nodes)
    return KernelLaunch(kernel, tuple(t for t, _ in emitter.buffers), tuple(origins))


def _launches(tensors: TensorGraph, limits: Limits, hint: Hint, launch: KernelLaunch) -> Iterator[KernelLaunch]:
    """Returns the launch with its kernel in canonical form, or the launches that it is split into."""
    kernel = canonicalize(launch.kernel, hint)
    halves = split_reduction(kernel, limits, hint)
    if halves is None:
        yield replace(launch, kernel=split_ranges(kernel, limits))
        return
    numbers = dict(zip((b.name for b in kernel.buffers), launch.tensors, strict=True))
    device = tensors.tensors[launch.tensors[0]].type.device
    for partial in halves.partials:
        tensors.tensors.append(Tensor(partial.name, TensorType.dense(partial.dtype, (partial.size,), device)))
        numbers[partial.name] = len(tensors.tensors) - 1
    for half in (halves.first, halves.second):
        own = replace(launch, kernel=half, tensors=tuple(numbers[b.name] for b in half.buffers))
        yield from _launches(tensors, limits, hint, own)


def _alone(tensors: TensorGraph, node: LoopNode) -> tuple[Callable[[Emitter], Kernel], ...]:
    """Returns a scan as one kernel, and a scatter as a copy of its base and the updates."""
    if node.definition.kind == "scan":
        return (lambda e: _scan(e, tensors, node),)
    return (lambda e: _copy_base(e, tensors, node), lambda e: _updates(e, tensors, node))


def _scan(emitter: Emitter, tensors: TensorGraph, node: LoopNode) -> Kernel:
    definition = node.definition
    along = definition.scanned
    assert along is not None
    at = {a: index(a) for a in definition.axes}
    emitter.open([a for a in definition.axes if a is not along])
    emitter.open([along])
    step = next(s for s in definition.steps if isinstance(s, Scan))
    args = emitter.arguments(node, at, step.args)
    numbers = tuple(emitter.number(len(emitter.blocks) - 1) for _ in step.results)
    emitter.blocks[-1].stmts.append(Scan(numbers, step.monoid, args, step.dtypes))
    for k, tensor in enumerate(node.results):
        value = emitter.output(node, at, numbers, k)
        where = flatten([at[a] for a in definition.axes], tensors.tensors[tensor].type.strides)
        emitter.blocks[-1].stmts.append(Store(emitter.buffer(tensor, "out"), where, value))
    emitter.close("scan", [along])
    emitter.close("parallel", [a for a in definition.axes if a is not along])
    return emitter.kernel()


def _copy_base(emitter: Emitter, tensors: TensorGraph, node: LoopNode) -> Kernel:
    base, (result,) = node.definition.base, node.results
    assert base is not None
    emitter.computed[id(node)] = node
    type = tensors.tensors[result].type
    axes = [Axis(f"c{n}", size) for n, size in enumerate(type.shape)]
    at: tuple[Index, ...] = tuple(map(index, axes))
    emitter.open(axes)
    value = emitter.element(node.operands[base], at)
    emitter.blocks[-1].stmts.append(Store(emitter.buffer(result, "out"), flatten(at, type.strides), value))
    emitter.close("parallel", axes)
    return emitter.kernel()


def _updates(emitter: Emitter, tensors: TensorGraph, node: LoopNode) -> Kernel:
    definition, (result,) = node.definition, node.results
    update = definition.update
    assert update is not None
    at = {a: index(a) for a in definition.axes}
    emitter.open(definition.axes)
    (value,) = emitter.arguments(node, at, (update.value,))
    mask = None if update.mask is None else emitter.arguments(node, at, (update.mask,))[0]
    where = flatten(emitter.coordinates(node, at, update.at), tensors.tensors[result].type.strides)
    mask = emitter.both(mask, emitter.passed())  # a wrong index writes nothing
    store = Store(emitter.buffer(result, "inout"), where, value, update.mode, mask)
    emitter.blocks[-1].stmts.append(store)
    emitter.close("parallel", definition.axes)
    return emitter.kernel()
