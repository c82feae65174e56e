"""Kernels that write over what they read for the last time, so that both take the memory of one.

A kernel may do so where each iteration reads one element and then writes the same one. The buffer that it read from is
``inout`` then, and what it wrote is gone from the schedule: later steps read the tensor that was overwritten. Libraries
read a view of it if they take what was written in other shapes or strides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from keel.fuel import Fuel
from keel.loops.index import Axis, axes_of, loaded_of
from keel.loops.ir import Buffer, Check, Kernel, Load, Loop, Stmt, Store, results_of, walk
from keel.schedule.kernel_launch import KernelLaunch, Step
from keel.schedule.loop_order import rename_canonically, renumbered
from keel.schedule.read_types import is_same_memory
from keel.schedule.tensor_graph import ExternCall, TensorGraph, library_views, with_slots


def write_in_place(
    graph: TensorGraph,
    steps: Sequence[Step],
    fuel: Fuel,
    overwrites: Mapping[int, int] = MappingProxyType({}),
    donated: Set[int] = frozenset(),
) -> tuple[TensorGraph, tuple[Step, ...], frozenset[int], frozenset[int]]:
    """Returns the graph and its steps with results written over dead tensors of the same size, each for one ``fuel``;
    the inputs that are overwritten by their new contents; and those that are overwritten by other results. The former
    are in ``overwrites``, which maps numbers of outputs to the number of the input whose new contents they are. The
    latter are in ``donated``: numbers of inputs, each with its own memory, that nobody reads after the call.
    """
    donated_tensors = {t for i in donated if isinstance(t := graph.inputs[i], int)}
    overwriting = _Overwriting(graph, steps, fuel, _replaced_inputs(graph, steps, overwrites), donated_tensors)
    changed = tuple(overwriting.step(k, step) for k, step in enumerate(steps))
    left = (s if isinstance(s, ExternCall) else _without_copies(s) for s in changed)
    present = tuple(s for s in left if s is not None)
    written = overwriting.overwritten
    return overwriting.graph(), present, frozenset(written - donated_tensors), frozenset(written & donated_tensors)


def _replaced_inputs(graph: TensorGraph, steps: Sequence[Step], overwrites: Mapping[int, int]) -> dict[int, int]:
    """Maps results that may be written over an input to that input. No other output may lie in the result's memory, or
    it would change with the input later.
    """
    views = library_views(steps)
    shown = Counter(m for o in graph.outputs if isinstance(o, int) for m in graph.memories(o, views))
    pairs = ((graph.outputs[o], graph.inputs[i]) for o, i in overwrites.items())
    return {
        result: source
        for result, source in pairs
        if isinstance(result, int)
        and isinstance(source, int)
        and shown[result] == 1
        and graph.tensors[result].type == graph.tensors[source].type
    }


class _Overwriting:
    def __init__(
        self, graph: TensorGraph, steps: Sequence[Step], fuel: Fuel, replaced: Mapping[int, int], donated: Set[int]
    ):
        self.tensors, self.steps, self.fuel, self.replaced, self.donated = graph, steps, fuel, replaced, donated
        self.overwritten: set[int] = set()  # inputs
        self.instead: dict[int, int] = {}  # of each result that is not there any more: the tensor with its elements
        self.views_of: dict[int, int] = {}  # of those that libraries read as a view: the tensor that it is a view of
        self.made: set[int] = set()  # the tensors that a step has written to so far
        self.own: set[int] = set()  # those of them whose memory is theirs alone
        self.types = {n: t.type for n, t in enumerate(graph.tensors)}
        self.typed = {t for s in steps if isinstance(s, ExternCall) for t in (*s.operands, *s.results)}
        self.typed.update(o for o in graph.outputs if isinstance(o, int))  # which somebody else than kernels is given
        self.typed |= donated
        self.views = library_views(steps)
        self.last = self._last_uses(steps)
        self.checked = self._checked_from(steps) if replaced else []

    def _last_uses(self, steps: Sequence[Step]) -> dict[int, int]:
        """The number of the last step that uses the memory of a tensor, or a later one for what the caller has."""
        last: dict[int, int] = {}

        def use(tensors: Iterable[object], when: int) -> None:
            for tensor in tensors:
                if isinstance(tensor, int):
                    last.update(dict.fromkeys(self.tensors.memories(tensor, self.views), when))

        for k, step in enumerate(steps):
            use(step.tensors if isinstance(step, KernelLaunch) else (*step.operands, *step.results), k)
        # An output that is such an input itself has its new contents after the call in any case.
        replaced = {*self.replaced.values()}
        inputs = (t for t in self.tensors.inputs if t not in self.donated)
        interface = (t for t in (*inputs, *self.tensors.outputs) if t not in replaced)
        use((*interface, *self.tensors.checks), len(steps))
        return last

    def _checked_from(self, steps: Sequence[Step]) -> list[int]:
        """For each step: the first tensor, in the order of the program, whose indices that step or a later one checks,
        or that a library computes there, which may raise. Behind all of these it is the number of tensors.
        """
        checks, first = self.tensors.checks, [len(self.tensors.tensors)]
        for step in reversed(steps):
            if isinstance(step, KernelLaunch):
                computed = [site.result for t in step.tensors for site in checks.get(t, ())]
            else:
                computed = [t for t in step.results if t >= 0]
            first.append(min((first[-1], *computed)))
        return first[::-1]

    def _may_replace(self, number: int, launch: KernelLaunch, dead: int, result: int) -> bool:
        """Whether a launch may write a result over an input. After an error, the input has to be as the program left
        it, so nothing that comes earlier in the program may be checked, or computed by a library, in the step that
        first changes the input or later. A scatter's base is copied before the scatter changes it.
        """
        if self.replaced.get(result) != dead:
            return False
        buffers = dict(launch.arguments())
        if _is_copy(launch.kernel, buffers[dead].name, buffers[result].name):
            later = range(number + 1, len(self.steps))
            number = next((k for k in later if _writes(self.steps[k], result)), len(self.steps))
        return self.checked[number] >= result

    def graph(self) -> TensorGraph:
        """The graph without the results that are written over other tensors."""
        tensors = [
            replace(t, type=self.types[n], alias=t.alias and (self._present(t.alias[0]), t.alias[1]))
            for n, t in enumerate(self.tensors.tensors)
        ]
        for view, memory in self.views_of.items():
            tensors[view] = replace(tensors[view], alias=(memory, 0))
        outputs = [self._present(o) if isinstance(o, int) else o for o in self.tensors.outputs]
        return replace(self.tensors, tensors=tensors, outputs=outputs)

    def _present(self, tensor: int) -> int:
        return self.instead.get(tensor, tensor)

    def step(self, number: int, step: Step) -> Step:
        """The step as it is among those that have changed."""
        if isinstance(step, ExternCall):
            results = [t for t in step.results if t >= 0]
            self.own.update(() if step.extern.view else results)
            self.made.update(results)
            return with_slots(step, {t: u for t, u in self.instead.items() if t not in self.views_of})
        launch = replace(step, tensors=tuple(map(self._present, step.tensors)))
        written = [t for t in launch.writes if t not in self.made]
        for result in written:
            launch = self._in_place(number, launch, result)
        new = [t for t in written if t not in self.instead]
        self.own.update(new)
        self.made.update(new)
        return launch

    def _in_place(self, number: int, launch: KernelLaunch, result: int) -> KernelLaunch:
        """The launch with ``result`` written over a tensor that it reads, if there is one."""
        buffers = dict(launch.arguments())
        viewed = {self._present(m) for t in launch.tensors for m in self.tensors.memories(t, self.views) if m != t}
        for dead, buffer in buffers.items():
            if (
                buffer.role == "in"
                and (dead in self.own or dead in self.donated or self._may_replace(number, launch, dead, result))
                and dead not in viewed
                and self.last[dead] == number
                and (self._fits(dead, result) or self._may_view(dead, result))
                and buffers[result].role == "out"
                and can_overwrite(launch.kernel, buffer.name, buffers[result].name)
                and self.fuel.take()
            ):
                self._replace(dead, result)
                return _merged(launch, dead, result)
        return launch

    def _replace(self, dead: int, result: int) -> None:
        """Has ``dead`` take the place of ``result`` from here on."""
        fits = self._fits(dead, result)
        self.instead[result] = dead
        if dead not in self.own:
            self.overwritten.add(dead)
        self.last[dead] = self.last[result]
        if not fits:
            self.views_of[result] = dead
        elif result in self.typed:
            self.typed.add(dead)
            self.types[dead] = self.types[result]

    def _fits(self, dead: int, result: int) -> bool:
        """Whether one tensor can be both: one that only kernels are given may have any type of its size."""
        have, need = self.types[dead], self.types[result]
        return have == need or (not self.typed.issuperset((dead, result)) and is_same_memory(have, need))

    def _may_view(self, dead: int, result: int) -> bool:
        """Whether libraries can read ``result`` as a view of ``dead``. The caller is given no such view."""
        return result not in self.tensors.outputs and is_same_memory(self.types[dead], self.types[result])


def can_overwrite(kernel: Kernel, source: str, target: str) -> bool:
    """True if every iteration reads one element of ``source`` and then writes the same one of ``target``, and no other
    statement touches either buffer.
    """
    touching = [(axes, s) for axes, s in _accesses(kernel.body) if s.buffer in (source, target)]
    *loads, (axes, store) = touching
    return (
        isinstance(store, Store)
        and store.mode == "write"
        and not loaded_of(store.index)
        and axes_of(store.index) >= axes
        and all(isinstance(s, Load) and s.index == store.index and within is axes for within, s in loads)
    )


def _without_copies(launch: KernelLaunch) -> KernelLaunch | None:
    """The launch without loops that only write what they read where they read it, as the copy before a scatter may;
    None if nothing is left.
    """
    kernel = launch.kernel
    body = tuple(s for s in kernel.body if not (isinstance(s, Loop) and _copies_in_place(s)))
    if len(body) == len(kernel.body):
        return launch
    if not any(isinstance(s, Loop | Store) for s in body):
        return None
    touched = {s.buffer for s in walk(body) if isinstance(s, Load | Store | Check)}
    left = {t: b for t, b in launch.arguments() if b.name in touched}
    kernel = rename_canonically(Kernel(kernel.name, tuple(left.values()), body))
    return replace(launch, kernel=kernel, tensors=tuple(left))


def _copies_in_place(loop: Loop) -> bool:
    if not all(isinstance(s, Load | Store | Loop) for s in walk(loop.body)):
        return False
    stores = [s for s in walk(loop.body) if isinstance(s, Store)]
    return all(_copied(loop.body, s) == s.buffer for s in stores)


def _is_copy(kernel: Kernel, source: str, target: str) -> bool:
    """True if all that is written to ``target`` are the elements of ``source`` at the same places."""
    stores = [s for s in walk(kernel.body) if isinstance(s, Store) and s.buffer == target]
    return all(_copied(kernel.body, s) == source for s in stores)


def _copied(body: tuple[Stmt, ...], store: Store) -> str | None:
    """The buffer whose element at the same place is stored; None if it is another value."""
    if store.mode != "write":
        return None
    loads = (s for s in walk(body) if isinstance(s, Load) and s.result == store.value)
    return next((s.buffer for s in loads if s.index == store.index and s.mask is None), None)


def _writes(step: Step, tensor: int) -> bool:
    return tensor in (step.writes if isinstance(step, KernelLaunch) else step.results)


def _accesses(body: Iterable[Stmt], axes: Set[Axis] = frozenset()) -> Iterator[tuple[Set[Axis], Load | Store]]:
    """Yields the loads and stores in order, each with the axes of the loops around it; statements of one block have the
    same set.
    """
    for stmt in body:
        if isinstance(stmt, Load | Store):
            yield axes, stmt
        elif isinstance(stmt, Loop):
            yield from _accesses(stmt.body, axes | set(stmt.axes))


def _merged(launch: KernelLaunch, dead: int, result: int) -> KernelLaunch:
    """Returns the launch without ``result``, whose elements it writes to ``dead``."""
    buffers = dict(launch.arguments())
    names: Mapping[str, str] = {b.name: buffers[dead if t == result else t].name for t, b in buffers.items()}
    left: dict[int, Buffer] = {
        t: replace(b, role="inout") if t == dead else b for t, b in buffers.items() if t != result
    }
    values = {r: r for s in walk(launch.kernel.body) for r in results_of(s)}
    kernel = Kernel(launch.kernel.name, tuple(left.values()), renumbered(launch.kernel.body, values, names))
    return replace(launch, kernel=rename_canonically(kernel), tensors=tuple(left))
