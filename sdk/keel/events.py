"""What the compiler reports while it works: events, and a listener that keeps the state of each graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import fx

from keel.placement.audit.itemized_cost import PartCost, itemize
from keel.placement.faults import Fault
from keel.placement.placement import Plan
from keel.placement.solve.build_problem import Pricing
from keel.runtime.autotune import PlanTiming
from keel.runtime.link import CompiledPart
from keel.runtime.part_interface import BuiltPart
from keel.runtime.part_progress import PartsCompiled
from keel.torch_adapter import Kind


@dataclass(frozen=True)
class StageStarted:
    """A stage of compiling a graph begins: legalize, place, compile, link, store (in the cache of graphs), or rivals
    (other plans, which are timed).
    """

    stage: str


@dataclass(frozen=True)
class PartsBuilt:
    """The parts of a graph are compiled and linked. Their launch programs are freed after this."""

    kind: Kind
    parts: tuple[BuiltPart, ...]


@dataclass(frozen=True)
class GraphCompiled:
    """A graph was compiled: the ``captured`` and the legalized graph, its plan, its parts, the names of inputs that
    never change, the seconds that each stage took, and the pricing of placements if they are by cost.
    """

    kind: Kind
    captured: fx.GraphModule
    gm: fx.GraphModule
    plan: Plan
    parts: tuple[CompiledPart, ...]
    constants: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)
    price: Pricing | None = None

    @cached_property
    def bills(self) -> tuple[PartCost, ...] | None:
        """The cost of each part by the data sheets; None if some backend has none, or if a data sheet fails.  It is
        computed when it is first read, because every composite is decomposed for it.
        """
        try:
            return itemize(self.gm, self.plan, self.constants)
        except Fault:
            return None


@dataclass(frozen=True)
class GraphLoaded:
    """A graph was not compiled, because the cache had it: with these parts, and the seconds that each stage took."""

    kind: Kind
    parts: tuple[CompiledPart, ...]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class AutotuneSkipped:
    """The plan of a compiled graph is not timed against others, although the user asked for that."""

    graph: GraphCompiled
    reason: str


@dataclass(frozen=True)
class AutotuneStarted:
    """The first calls of a compiled graph time its plan against others."""

    graph: GraphCompiled


@dataclass(frozen=True)
class PlanSelected:
    """Timing has ended: later calls run the plan of ``graph``.  ``timings`` has all plans, those that failed too."""

    graph: GraphCompiled
    timings: tuple[PlanTiming, ...]


Event = (
    StageStarted
    | PartsCompiled
    | PartsBuilt
    | GraphCompiled
    | GraphLoaded
    | AutotuneSkipped
    | AutotuneStarted
    | PlanSelected
)
Listener = Callable[[Event], None]
"""Called with each event, on the thread where it happens.  A graph between two calls of streams or events, or next to
a call that runs in eager PyTorch, is a graph of its own."""


def ignore(event: Event) -> None:
    """The listener that does nothing."""


def each_of(*listeners: Listener) -> Listener:
    """A listener that passes each event to all of these, in order."""

    def listen(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return listen


@dataclass(frozen=True)
class GraphState:
    """What is known of a graph after the last event: the plan that it runs, and what came of autotuning."""

    graph: GraphCompiled
    is_timing: bool = False
    timings: tuple[PlanTiming, ...] = ()
    skipped: str = ""


class EventLog:
    """A listener that keeps the state of each captured graph, in the order in which they were first compiled."""

    def __init__(self) -> None:
        self._states: dict[int, GraphState] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageStarted | PartsCompiled | PartsBuilt | GraphLoaded):
            return
        graph = event if isinstance(event, GraphCompiled) else event.graph
        before = self._states.get(id(graph.captured), GraphState(graph))  # the state keeps the graph, and so its id
        match event:
            case GraphCompiled():
                after = GraphState(event)
            case AutotuneSkipped():
                after = replace(before, skipped=event.reason)
            case AutotuneStarted():
                after = replace(before, is_timing=True)
            case PlanSelected():
                after = GraphState(graph, timings=event.timings)
        self._states[id(graph.captured)] = after

    @property
    def states(self) -> tuple[GraphState, ...]:
        return tuple(self._states.values())

    @property
    def graphs(self) -> tuple[GraphCompiled, ...]:
        """The graphs with the plans that they run."""
        return tuple(state.graph for state in self.states)

    @property
    def is_timing(self) -> bool:
        """Whether some graph still times plans."""
        return any(state.is_timing for state in self.states)
