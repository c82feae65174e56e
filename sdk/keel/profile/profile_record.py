"""What is measured of a model's steps, as data: all that a report is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from keel.cost import Cost
from keel.profile.part_work import PartWork
from keel.refusal_reports import RefusalReport
from keel.torch_adapter import Compilation, GraphBreak


@dataclass(frozen=True)
class Span:
    """A range or operator in a profile, with those ``inside`` it. Seconds count from the start of its step. The kernels
    that it launched on an accelerator took ``launched`` seconds.
    """

    name: str
    start: float
    end: float
    launched: float = 0.0
    inside: tuple[Span, ...] = ()

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class ProfiledStep:
    """One step under the profiler. ``device`` has the start and end of each kernel of accelerators. ``memory`` has, for
    each device, the bytes above those at the start of the step after each change.
    """

    seconds: float
    spans: tuple[Span, ...]
    device: tuple[tuple[float, float], ...] = ()
    memory: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Crossing:
    """The ``bytes`` of the tensors that parts of one backend make and parts of another read in one call of a graph."""

    graph: str
    source: str
    target: str
    bytes: float


@dataclass(frozen=True)
class GraphRecord:
    """A compiled graph, by the range that profilers show. ``passed_over`` are the calls that a backend takes and that
    placement gave to one that the user prefers less, by backend and operator.
    """

    name: str
    parts: tuple[PartWork, ...]
    refused: tuple[RefusalReport, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    passed_over: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileRecord:
    """What was measured. ``times`` are the seconds of each timed step without a profiler, by compiler: ``keel``,
    ``eager`` and, if it was compared, ``inductor``. Keel ran ``steps`` before the profiler, and compiled something in
    those with the numbers ``compiled_in``. ``sheets`` are the data sheets of the backends that have one. ``notes`` say
    what was not measured, and why.
    """

    backends: tuple[str, ...]
    last_resorts: tuple[str, ...]
    is_training: bool
    times: Mapping[str, tuple[float, ...]]
    profiled: tuple[ProfiledStep, ...]
    graphs: tuple[GraphRecord, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    steps: int = 0
    compiled_in: tuple[int, ...] = ()
    sheets: Mapping[str, Cost] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
