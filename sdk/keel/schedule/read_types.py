"""Gives what kernels make the types in which libraries and the caller read it.

A kernel takes memory, and its shape and strides do not matter. A library that reads a kernel's result as another
shape of the same memory needs a view, which costs the host a call each time. None is needed if the memory is allocated
in that shape.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from keel.schedule.kernel_launch import KernelLaunch, Step
from keel.schedule.tensor_graph import ExternCall, Tensor, TensorGraph, with_slots
from keel.types import TensorType


def type_as_read(graph: TensorGraph, steps: Sequence[Step]) -> tuple[TensorGraph, tuple[Step, ...]]:
    """Returns the graph and its steps with each kernel's result in the type in which most readers take it, and given to
    them itself instead of as a view.
    """
    made = _made_by_kernels(graph, steps)
    readers: dict[int, Counter[TensorType]] = defaultdict(Counter)
    shown = tuple(_shown(graph, steps))
    bases = {t: base for t in shown if (base := graph.base(t)[0]) in made and _covers(graph, t)}
    for tensor in shown:
        if tensor in bases:
            readers[bases[tensor]][graph.tensors[tensor].type] += 1
    tensors = list(graph.tensors)
    for base, types in readers.items():
        ((best, _),) = types.most_common(1)
        tensors[base] = replace(tensors[base], type=best)
    instead: dict[int, int] = {}
    for tensor, base in bases.items():
        type = graph.tensors[tensor].type
        if type == tensors[base].type:
            instead[tensor] = base
        elif tensor == base:
            tensors.append(Tensor(tensors[base].name, type, (base, 0)))
            instead[tensor] = len(tensors) - 1
    outputs = [instead.get(o, o) if isinstance(o, int) else o for o in graph.outputs]
    changed = (with_slots(s, instead) if isinstance(s, ExternCall) else s for s in steps)
    return replace(graph, tensors=tensors, outputs=outputs), tuple(changed)


def _made_by_kernels(graph: TensorGraph, steps: Sequence[Step]) -> set[int]:
    """Returns the tensors that only kernels write to, but for those in which several results of the part lie: these
    remain separate.
    """
    made = {t for s in steps if isinstance(s, KernelLaunch) for t in s.writes} - graph.checks.keys()
    made -= {t for s in steps if isinstance(s, ExternCall) for t in s.results}
    returned = Counter(graph.base(o)[0] for o in graph.outputs if isinstance(o, int))
    return {t for t in made if returned[t] <= 1}


def _shown(graph: TensorGraph, steps: Sequence[Step]) -> Iterator[int]:
    """Yields the tensors that libraries read and those that the caller is given, as often as they are."""
    for step in steps:
        if isinstance(step, ExternCall):
            yield from step.operands
    yield from (o for o in graph.outputs if isinstance(o, int))


def _covers(graph: TensorGraph, tensor: int) -> bool:
    """Whether ``tensor`` has as many elements as the tensor in whose memory it lies, from the first to the last."""
    base, offset = graph.base(tensor)
    return offset == 0 and is_same_memory(graph.tensors[base].type, graph.tensors[tensor].type)


def is_same_memory(made: TensorType, read: TensorType) -> bool:
    """Whether memory that is allocated for the type ``made`` may be allocated for ``read`` instead, at the same time:
    when all sizes of ``made`` are known.
    """
    same = (made.dtype, made.device, made.numel, made.extent) == (read.dtype, read.device, read.numel, read.extent)
    return same and set(made.symbols).issuperset(read.symbols)
