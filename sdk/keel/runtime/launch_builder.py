"""From a schedule to the launch program: what lives where, which symbols are known when, and the steps in order.

Symbolic sizes are numbers of a call, read off its inputs once; what depends on their values alone (the arena and the
views into it) is made once per distinct values and kept for the next call.  Sizes that only a library's result tells
(of a nonzero, say) are read off it, and what has them is allocated from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from keel.graph.module_paths import range_name
from keel.runtime.device_tensors import META
from keel.runtime.launch_program import (
    Allocate,
    ArenaPlan,
    ArenaTensor,
    ArenaView,
    BindSymbol,
    CallLibrary,
    CheckIndices,
    CheckMemory,
    Free,
    GiveArena,
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
from keel.runtime.launch_reuse import with_reuse
from keel.runtime.launch_symbols import LaunchSymbols
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import CheckSite, ExternCall, Slot, library_views
from keel.types import TensorType, leaves, symbols_of

SHOWN = 6
"""How many operators of a kernel its label names."""


def build_program(
    schedule: Schedule, arena: bool = True, owner: str = "", pinned: bool = False, hidden: bool = False
) -> LaunchProgram:
    """The launch program of a schedule, whose intermediate tensors lie in an arena or have memory of their own, which
    is freed, or reused, after their last use.  Labels name the backend ``owner``, whose kernels can write to ``pinned``
    memory of the host or cannot. With ``hidden``, tensors are in memory that PyTorch does not know.  Raises
    KeelError[bad-graph] if a size is known from nothing.
    """
    return _Builder(schedule, arena, owner, pinned, hidden).build()


class _Builder:
    def __init__(self, schedule: Schedule, arena: bool, owner: str, pinned: bool, hidden: bool):
        self.schedule, self.tensors, self.owner, self.pinned = schedule, schedule.tensors, owner, pinned
        self.hidden = hidden
        self.outputs = {o for o in self.tensors.outputs if isinstance(o, int)}
        self.symbols = LaunchSymbols(schedule)
        self.binds = self.symbols.bind_inputs()
        self.key = self.symbols.key()
        self.held = library_views(schedule.steps)
        self.written = {t for s in schedule.steps if isinstance(s, KernelLaunch) for t in s.writes}
        self.checks = self._check_memory()
        self.used = self._used()
        self.arena_tensors = self._in_arena() if arena else {}
        self.views = self._kept_views()
        self.ready = {i for i in self.tensors.inputs if isinstance(i, int)}  # tensors that can be used by now
        self.ready |= {*self.arena_tensors, *self.views, *self.tensors.checks}

    def build(self) -> LaunchProgram:
        steps: list[Step] = [*self.binds, *map(Own, sorted(self.schedule.donated))]
        settles = bool(self.checks.sites) and not self.checks.at_once
        steps += [SettleChecks(after=False)] if settles else []
        arena = bool(self.arena_tensors) or self.checks.at_once
        steps += [TakeArena()] if arena else []
        for step in self.schedule.steps:
            steps += self._launch(step) if isinstance(step, KernelLaunch) else self._call(step)
        for o in self.tensors.outputs:
            steps += self._view(o) if isinstance(o, int) else []
        steps += [SettleChecks(after=True)] if settles else []
        types = tuple(map(self._type, range(len(self.tensors.tensors))))
        steps = with_reuse(self._freed(steps), types)
        steps += [GiveArena()] if arena else []
        steps.append(Return(tuple(self.tensors.outputs)))
        plan = ArenaPlan(
            self.key, self._lifetimes(steps), tuple(ArenaView(t, *self.tensors.base(t)) for t in self.views)
        )
        return LaunchProgram(
            types, tuple(self.tensors.inputs), tuple(steps), plan, self.checks, self.schedule.overwritten
        )

    def _type(self, tensor: int) -> TensorType:
        type = self.tensors.tensors[tensor].type
        return replace(type, device=META) if self.hidden else type

    # -- what lives where ----------------------------------------------------------------------------

    def _in_arena(self) -> dict[int, None]:
        """Base tensors that are made here, into memory given to the maker, and that no output shows.  What is read from
        where its storage starts has a storage of its own, as it had in the graph.
        """
        shown = {m for o in self.outputs for m in self._memory(o)}
        shown |= {
            m
            for s in self.schedule.steps
            if isinstance(s, ExternCall) and s.absolute
            for t in s.operands
            for m in self._memory(t)
        }
        known = set(self.key)
        made: dict[int, None] = {}
        other = shown | self.tensors.checks.keys() | self.schedule.donated
        for step in self.schedule.steps:
            if isinstance(step, KernelLaunch):
                made |= dict.fromkeys(step.writes)
            elif _fills(step):
                made |= dict.fromkeys(step.results)
            else:
                other.update(step.results)
        return {t: None for t in made if t not in other and known.issuperset(self._type(t).symbols)}

    def _kept_views(self) -> dict[int, None]:
        """Tensors inside kept ones that library calls take."""
        used = [t for s in self.schedule.steps if isinstance(s, ExternCall) for t in s.operands]
        known = set(self.key)
        return {
            t: None
            for t in used
            if t not in self.arena_tensors
            and self.tensors.base(t)[0] in self.arena_tensors
            and known.issuperset((*self._type(t).symbols, *symbols_of([self.tensors.base(t)[1]])))
        }

    def _memory(self, tensor: int) -> Iterator[int]:
        return self.tensors.memories(tensor, self.held)

    def _used(self) -> set[int]:
        """The tensors that a step or the caller is given, and those whose memory they lie in."""
        operands = {t for s in self.schedule.steps for t in (s.tensors if isinstance(s, KernelLaunch) else s.operands)}
        return {m for t in (*operands, *self.outputs) for m in (t, self.tensors.base(t)[0])}

    def _lifetimes(self, steps: Sequence[Step]) -> tuple[ArenaTensor, ...]:
        """The kept tensors with the first and the last step that touch their memory."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for k, step in enumerate(steps):
            for t in tensors_of(step):
                for base in self._memory(t):
                    first.setdefault(base, k)
                    last[base] = k
        return tuple(ArenaTensor(t, first[t], last[t]) for t in self.arena_tensors)

    def _freed(self, steps: Sequence[Step]) -> list[Step]:
        """Returns the steps with frees: each tensor that is given or owns memory here and is not a result is freed
        after its last use, if a later step needs memory.
        """
        inputs = {i for i in self.tensors.inputs if isinstance(i, int)}
        own = inputs.union(*map(_made, steps)) - self.outputs
        last = {t: k for k, step in enumerate(steps) for t in tensors_of(step) if t in own}
        needy = max((k for k, step in enumerate(steps) if _made(step)), default=0)
        freed: dict[int, list[Step]] = {}
        for t, k in last.items():
            if k < needy:
                freed.setdefault(k, []).append(Free(t))
        return [s for k, step in enumerate(steps) for s in (step, *freed.get(k, ()))]

    # -- checks --------------------------------------------------------------------------------------

    def _check_memory(self) -> CheckMemory:
        """Each tensor's places begin at a multiple of 16 bytes, as kernels like it."""
        sites: list[CheckSite] = []
        places: dict[int, slice] = {}
        for tensor, own_sites in self.tensors.checks.items():
            places[tensor] = slice(len(sites), len(sites) + len(own_sites))
            sites += [*own_sites, *own_sites[-1:]] if len(own_sites) % 2 else own_sites
        at_once = any(self._type(t).device.type == "cpu" for t in self.tensors.checks)
        return CheckMemory(tuple(sites), places, at_once, self.pinned and not at_once)

    # -- steps ---------------------------------------------------------------------------------------

    def _launch(self, step: KernelLaunch) -> list[Step]:
        steps: list[Step] = [s for t in step.writes for s in self._allocate(t)]
        steps.append(LaunchKernel(step.kernel, step.tensors, self.symbols.of(step.kernel), self._label(step)))
        checked = tuple(t for t in step.tensors if t in self.tensors.checks)
        return [*steps, CheckIndices(checked)] if checked and self.checks.at_once else steps

    def _call(self, step: ExternCall) -> list[Step]:
        steps: list[Step] = [s for t in step.operands for s in self._view(t)]
        run, args, kwargs = step.extern.run, step.args, step.kwargs
        label = range_name(self.owner, [step.module], step.name)
        if _fills(step):
            assert step.extern.out is not None
            (out,) = step.results
            return [*steps, *self._allocate(out), CallLibrary(step.extern.out, args, kwargs, out=out, label=label)]
        view_of = step.operands[0] if step.extern.view and step.operands else None
        steps.append(CallLibrary(run, args, kwargs, step.results, view_of=view_of, label=label))
        made = [t for t in step.results if t >= 0]
        self.ready |= set(made)
        for t in made:
            steps += self.symbols.bind_sizes(t)
        for t in made:
            if t in self.used:
                others = (*step.operands, *(r for r in made if r != t)) if t in self.written else ()
                steps.append(LayOut(t, others))
        return steps

    def _label(self, launch: KernelLaunch) -> str:
        """What profilers show of a kernel: its modules, its name, and its operators."""
        operators = [*dict.fromkeys(op.removeprefix("aten.").partition(".")[0] for op, _ in launch.origins if op)]
        shown = operators if len(operators) <= SHOWN else [*operators[:SHOWN], "..."]
        return range_name(
            self.owner, (m for _, m in launch.origins), f"{launch.kernel.name} {', '.join(shown)}".rstrip()
        )

    def _allocate(self, tensor: int) -> list[Step]:
        if tensor in self.ready:
            return []
        self.ready.add(tensor)
        return [Allocate(tensor)]

    def _view(self, tensor: int) -> list[Step]:
        """Steps that make a tensor which is a view of another."""
        if tensor in self.ready or self.tensors.tensors[tensor].alias is None:
            return []
        self.ready.add(tensor)
        return [MakeView(tensor, *self.tensors.base(tensor))]


def tensors_of(step: Step) -> tuple[int, ...]:
    """The tensors whose memory a step touches, in any way; those that a call returns are not touched by that."""
    match step:
        case Allocate(tensor) | Free(tensor) | Own(tensor):
            return (tensor,)
        case LayOut(tensor, others):
            return (tensor, *others)
        case MakeView(tensor, base) | Reuse(tensor, base):
            return (base, tensor)
        case LaunchKernel(tensors=tensors) | CheckIndices(tensors):
            return tensors
        case CallLibrary():
            numbers = (*slots(step), *(t for t in step.results if t >= 0))
            return numbers if step.out is None else (*numbers, step.out)
        case BindSymbol(source=SizeOf(tensor) | StrideOf(tensor)):
            return (tensor,)
    return ()


def slots(step: CallLibrary) -> tuple[int, ...]:
    """The tensors among the arguments of a library call."""
    return tuple(v.number for v in leaves((*step.args, *step.kwargs.values())) if isinstance(v, Slot))


def _made(step: Step) -> tuple[int, ...]:
    """The tensors that a step makes a variable for, and that have, or are in, memory of their own."""
    match step:
        case Allocate(tensor) | MakeView(tensor):
            return (tensor,)
        case CallLibrary(results=results):
            return tuple(t for t in results if t >= 0)
    return ()


def _fills(step: ExternCall) -> bool:
    """Whether the library call writes its one result into memory that it is given."""
    return step.extern.out is not None and len(step.results) == 1
