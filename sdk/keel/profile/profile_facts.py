"""What a report on a model's speed says, made of what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from keel.profile.kernel_times import KernelTime, StepTimes, step_times
from keel.profile.profile_record import Crossing, ProfiledStep, ProfileRecord, Span
from keel.torch_adapter import Compilation, GraphBreak

KEEL = "keel"
POINTS = 200
"""The most points of memory over time in a report."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")


@dataclass(frozen=True)
class Recompilation:
    """A function that Dynamo compiled ``times`` times after the first, in ``seconds`` altogether. ``reasons`` are the
    guards that failed.
    """

    function: str
    line: str
    reasons: tuple[str, ...]
    times: int
    seconds: float


@dataclass(frozen=True)
class Fallback:
    """An operator that a backend of last resort runs, ``calls`` times in a step, in ``seconds``. ``backend`` refuses it
    for the ``reason``.
    """

    operator: str
    owner: str
    backend: str
    reason: str
    nearest: str | None
    lines: tuple[str, ...]
    calls: float
    seconds: float


@dataclass(frozen=True)
class MemoryUse:
    """The memory of a device in a step, in bytes above those at its start: the ``peak``, what ran then, and ``points``
    over time, in seconds.
    """

    device: str
    peak: int
    at: str
    points: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class ProfileFacts:
    """The facts of a report. ``medians`` are the seconds of a step by compiler, of ``steps`` steps each. ``first`` are
    the seconds that Dynamo took to compile each function once. Keel ran ``ran`` steps, and those with the numbers
    ``compiled_in`` compiled something.
    """

    backends: tuple[str, ...]
    is_training: bool
    medians: Mapping[str, float]
    steps: int
    times: StepTimes
    breaks: tuple[GraphBreak, ...]
    recompilations: tuple[Recompilation, ...]
    first: float
    ran: int
    compiled_in: tuple[int, ...]
    fallbacks: tuple[Fallback, ...]
    crossings: tuple[Crossing, ...]
    memory: tuple[MemoryUse, ...]
    notes: tuple[str, ...]

    @property
    def moves(self) -> tuple[KernelTime, ...]:
        """The kernels and operators that only copy or convert tensors."""
        return tuple(k for k in self.times.kernels if k.is_move)


def facts_of(record: ProfileRecord) -> ProfileFacts:
    """The facts that follow from what was measured."""
    medians = {name: median(seconds) for name, seconds in record.times.items()}
    times = step_times(medians[KEEL], record.profiled, record.graphs, record.sheets, record.last_resorts)
    live = {span.name for step in record.profiled for root in step.spans for span in _all(root)}
    first = [c for c in record.compilations if not c.reason]
    return ProfileFacts(
        record.backends,
        record.is_training,
        medians,
        len(record.times[KEEL]),
        times,
        tuple(dict.fromkeys(record.breaks)),
        recompilations(record.compilations),
        sum(c.seconds for c in first),
        record.steps,
        record.compiled_in,
        fallbacks(record, live, times.kernels),
        tuple(crossing for graph in record.graphs if graph.name in live for crossing in graph.crossings),
        memory_use(record.profiled[0]),
        (*record.notes, *_notes(record, live, times)),
    )


def recompilations(compilations: Sequence[Compilation]) -> tuple[Recompilation, ...]:
    """The functions that were compiled again, by the line that their guards are about."""
    several: dict[tuple[str, str], list[Compilation]] = {}
    for one in compilations:
        if one.reason:
            several.setdefault((_function(one.function), one.line), []).append(one)
    return tuple(
        Recompilation(*key, tuple(dict.fromkeys(c.reason for c in same)), len(same), sum(c.seconds for c in same))
        for key, same in several.items()
    )


def _function(name: str) -> str:
    """A function's name as its author knows it, also of the rest of a function after a graph break."""
    resumed = _RESUMED.fullmatch(name)
    return name if resumed is None else f"{resumed[1]} after line {resumed[2]}"


def fallbacks(record: ProfileRecord, live: Iterable[str], kernels: Sequence[KernelTime]) -> tuple[Fallback, ...]:
    """The operators that a last resort runs in graphs of a step, those that take longest first. If several backends
    refuse a call, the one that the user prefers counts.
    """
    known: dict[tuple[str, str], Fallback] = {}
    names = {*live}
    reports = [r for graph in record.graphs if graph.name in names for r in graph.refused]
    for r in sorted(reports, key=lambda r: record.backends.index(r.backend)):
        if r.owner not in record.last_resorts:
            continue
        key = r.operator, r.owner
        if (before := known.get(key)) is None:
            same = [k for k in kernels if k.backend == r.owner and _is_of(k.name, r.operator)]
            calls, seconds = sum(k.calls for k in same) or r.calls, sum(k.seconds for k in same)
            known[key] = Fallback(r.operator, r.owner, r.backend, r.reason, r.nearest, r.where, calls, seconds)
        elif before.backend == r.backend:
            known[key] = replace(before, lines=tuple(dict.fromkeys((*before.lines, *r.where))))
    return tuple(sorted(known.values(), key=lambda f: -f.seconds))


def _is_of(name: str, operator: str) -> bool:
    """Whether a profiler's name, such as ``aten::relu``, is that of an overload."""
    return operator.startswith(name.replace("::", ".") + ".")


def memory_use(step: ProfiledStep) -> tuple[MemoryUse, ...]:
    """The memory of each device during a step."""
    uses = []
    for device, points in step.memory.items():
        at, peak = max(points, key=lambda point: point[1])
        uses.append(MemoryUse(device, peak, _running(step.spans, at), thinned(points, step.seconds)))
    return tuple(uses)


def _running(spans: Sequence[Span], at: float) -> str:
    """The innermost of Keel's ranges at a time; empty outside of all."""
    for span in spans:
        if span.start <= at <= span.end:
            return _running(span.inside, at) or (span.name if span.name.startswith("keel") else "")
    return ""


def thinned(points: Sequence[tuple[float, int]], seconds: float) -> tuple[tuple[float, int], ...]:
    """At most ``POINTS`` points: the highest of each part of the step, and the last value where it does not change."""
    buckets: dict[int, tuple[float, int]] = {}
    for at, value in points:
        n = min(int(POINTS * at / seconds), POINTS - 1) if seconds > 0 else 0
        if n not in buckets or value >= buckets[n][1]:
            buckets[n] = at, value
    return tuple(buckets[n] for n in sorted(buckets))


def _all(span: Span) -> Iterable[Span]:
    yield span
    for inner in span.inside:
        yield from _all(inner)


def _notes(record: ProfileRecord, live: Iterable[str], times: StepTimes) -> Iterable[str]:
    names = {*live}
    graphs = [graph for graph in record.graphs if graph.name in names]
    for backend in dict.fromkeys(k.backend for k in times.kernels if k.backend and k.backend not in record.sheets):
        yield f"{backend} has no data sheet, so its kernels have no roofs. keel bench --calibrate FILE measures one."
    for backend in dict.fromkeys(name for graph in graphs for name in graph.passed_over):
        yield f"Placement by cost leaves calls to others that {backend} takes, too; keel explain lists them."
    if times.profiled > 1.1 * times.seconds:
        extra = 100 * (times.profiled / times.seconds - 1)
        yield f"The profiler makes a step {extra:.0f} % longer, so the times of short kernels are too long."
    if not graphs:
        yield "Nothing of a step runs in compiled graphs: Dynamo skipped the function, or it computes no tensors."
