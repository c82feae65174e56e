"""Horizontal fusion: small kernels that do not depend on each other become one, which is launched once.

A kernel that reads only inputs of the part may run as early as any other such (casts of weights under autocast, the
steps of an optimizer). A kernel whose results no other step reads may run as late as any other such (casts of
gradients). Each becomes a loop of its own in the kernel that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from keel.fuel import Fuel
from keel.loops.ir import Buffer, Check, Const, Kernel, Loop, Stmt, Store, results_of, walk
from keel.plugin import Limits
from keel.schedule.kernel_launch import KernelLaunch, Step
from keel.schedule.loop_order import rename_canonically, renumbered
from keel.schedule.tensor_graph import ExternCall, TensorGraph, library_views
from keel.types import Dim

Hint = Callable[[Dim], int]
SMALL = 2**22
"""How many bytes a device moves in about the time of a launch: a larger kernel gains nothing."""
TOGETHER = 2**23
"""The most bytes of one kernel: what is computed early takes memory until it is read."""
LOOPS = 16
"""The most loops of one kernel: on a GPU each block of threads looks for its own."""


def fuse_horizontally(
    graph: TensorGraph, steps: Sequence[Step], limits: Limits, hint: Hint, fuel: Fuel
) -> tuple[Step, ...]:
    """Returns ``steps`` with small independent kernels fused. ``hint`` estimates sizes; each kernel that joins another
    takes ``fuel``.
    """
    gather = _Gatherer(graph, limits, hint, fuel)
    arguments = {t for t in graph.inputs if isinstance(t, int)}
    forward = gather.run(steps, lambda launch: arguments.issuperset(launch.reads))
    read = set(_read(graph, forward))
    backward = gather.run(forward[::-1], lambda launch: read.isdisjoint(launch.writes))
    return backward[::-1]


def _read(graph: TensorGraph, steps: Sequence[Step]) -> Iterator[int]:
    """Yields the tensors in whose memory some step reads."""
    views = library_views(graph.nodes)
    for step in steps:
        for tensor in step.reads if isinstance(step, KernelLaunch) else step.operands:
            yield from graph.memories(tensor, views)


class _Gatherer:
    def __init__(self, graph: TensorGraph, limits: Limits, hint: Hint, fuel: Fuel):
        self.graph, self.limits, self.hint, self.fuel = graph, limits, hint, fuel

    def run(self, steps: Sequence[Step], movable: Callable[[KernelLaunch], bool]) -> tuple[Step, ...]:
        """Returns the steps with each movable launch in the last group that began before it, if that has room."""
        groups: list[ExternCall | list[KernelLaunch]] = []
        last: list[KernelLaunch] = []
        for step in steps:
            if isinstance(step, ExternCall):
                groups.append(step)
            elif not (movable(step) and self._is_small(step)):
                groups.append([step])
            elif last and self._has_room([*last, step]) and self.fuel.take():
                last.append(step)
            else:
                last = [step]
                groups.append(last)
        return tuple(g if isinstance(g, ExternCall) else _joined(g) for g in groups)

    def _is_small(self, launch: KernelLaunch) -> bool:
        """True for elementwise loops of known sizes over few bytes."""
        kernel = launch.kernel
        return (
            not kernel.symbols
            and all(isinstance(s, Const) or _is_elementwise(s) for s in kernel.body)
            and launch.traffic(self.hint) <= SMALL
        )

    def _has_room(self, launches: Sequence[KernelLaunch]) -> bool:
        sizes = {(t, b.size) for launch in launches for t, b in launch.arguments()}
        devices = {self.graph.tensors[t].type.device for t, _ in sizes}
        return (
            len(devices) == 1
            and len({t for t, _ in sizes}) == len(sizes) <= self.limits.max_buffers
            and sum(isinstance(s, Loop) for launch in launches for s in launch.kernel.body) <= LOOPS
            and sum(launch.traffic(self.hint) for launch in launches) <= TOGETHER
        )


def _is_elementwise(stmt: Stmt) -> bool:
    """True for a loop that folds nothing, checks nothing and only writes."""
    if not isinstance(stmt, Loop) or stmt.kind != "parallel" or any(isinstance(s, Loop | Check) for s in stmt.body):
        return False
    return all(s.mode == "write" for s in stmt.body if isinstance(s, Store))


def _joined(launches: Sequence[KernelLaunch]) -> KernelLaunch:
    """Returns one launch with the loops of all, in order. None of them reads what another writes."""
    if len(launches) == 1:
        return launches[0]
    buffers: dict[int, Buffer] = {}
    body: list[Stmt] = []
    count = 0
    for launch in launches:
        for tensor, buffer in launch.arguments():
            buffers.setdefault(tensor, replace(buffer, name=f"b{len(buffers)}"))
        names = {b.name: buffers[t].name for t, b in launch.arguments()}
        results = [r for s in walk(launch.kernel.body) for r in results_of(s)]
        body += renumbered(launch.kernel.body, {r: count + k for k, r in enumerate(results)}, names)
        count += len(results)
    kernel = Kernel("joined", tuple(buffers.values()), tuple(body))
    origins = dict.fromkeys(origin for launch in launches for origin in launch.origins)
    return KernelLaunch(rename_canonically(kernel), tuple(buffers), tuple(origins))
