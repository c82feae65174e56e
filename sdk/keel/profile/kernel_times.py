"""Where the time of a step goes, from its profile: kernels next to their roofs, and the host's time between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from keel.cost import Cost
from keel.part_groups import common_pattern
from keel.profile.part_work import Launch, PartWork, Roof, Work, roof, total
from keel.profile.profile_record import GraphRecord, ProfiledStep, Span

_GRAPH = re.compile(r"keel (inference|forward|backward) graph\b.*")
_RANGE = re.compile(r"keel\.(?P<backend>[^ :]+) ?(?P<module>[^:]*): (?P<what>.*)")
_PART = re.compile(r"part \w+")
_OPERATOR = re.compile(r"\w+::\w+(\.\w+)?")
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_NODE = re.compile(r"_\d+$")
"""What tells nodes of a graph apart: mm, mm_1, mm_2."""
_COPY = "aten::copy_"
"""The operator that all of PyTorch's copies and conversions call."""


@dataclass(frozen=True)
class KernelTime:
    """A kernel, a library call, an operator that eager PyTorch runs, or a part of a graph-level backend. It runs
    ``calls`` times in a step, in ``seconds`` altogether. ``backend`` is empty outside of compiled graphs. ``roof`` is
    None if its work is unknown or its backend has no data sheet. ``is_move`` says that it only copies or converts.
    """

    backend: str
    module: str
    name: str
    graph: str
    calls: float
    seconds: float
    bytes: float | None = None
    flops: float | None = None
    roof: Roof | None = None
    is_move: bool = False

    @property
    def above_roof(self) -> float:
        """The seconds of a step that it takes more than its roof; 0 if that is unknown."""
        return 0.0 if self.roof is None else max(self.seconds - self.roof.seconds, 0.0)


@dataclass(frozen=True)
class StepTimes:
    """A step of ``seconds``, without a profiler: ``busy`` in kernels, and the rest on the ``host``. Of that, the host
    was ``outside`` of compiled graphs, of which ``between`` graphs that follow each other. ``profiled`` are the seconds
    of a step with the profiler.
    """

    seconds: float
    profiled: float
    busy: float
    outside: float
    between: float
    kernels: tuple[KernelTime, ...]

    @property
    def host(self) -> float:
        return max(self.seconds - self.busy, 0.0)

    @property
    def inside(self) -> float:
        """The host's seconds inside compiled graphs: checks, allocations and launches."""
        return max(self.host - self.outside, 0.0)

    @property
    def launches(self) -> float:
        """The number of kernels and calls that compiled graphs launch in a step."""
        return sum(k.calls for k in self.kernels if k.backend)


def step_times(
    seconds: float,
    steps: Sequence[ProfiledStep],
    graphs: Sequence[GraphRecord],
    sheets: Mapping[str, Cost],
    last_resorts: Sequence[str],
) -> StepTimes:
    """Where the time of a step of ``seconds`` goes, by the medians of profiled steps.

    A profiler slows the host down, so the host's time is what kernels leave of ``seconds``, with the shares of the
    profile. If profiled steps were faster nevertheless, the machine was less busy then, and their times are scaled.
    """
    several = [_Occurrences(step, graphs, last_resorts) for step in steps]
    profiled = median(step.seconds for step in steps)
    scale = max(seconds / profiled, 1.0) if profiled > 0 else 1.0
    busy = min(scale * median(_busy(step, one.kernels) for step, one in zip(steps, several, strict=True)), seconds)
    host = seconds - busy
    share = host / max(profiled - busy / scale, 1e-12)
    outside = min(share * median(one.outside for one in several), host)
    between = min(share * median(one.between for one in several), outside)
    return StepTimes(seconds, profiled, busy, outside, between, _kernels(several, sheets, last_resorts, scale))


class _Key(NamedTuple):
    backend: str
    module: str
    name: str
    graph: str


@dataclass(frozen=True)
class _Kernel:
    key: _Key
    seconds: float
    is_on_host: bool
    work: Work | None
    is_move: bool


class _Occurrences:
    """The kernels in one step of a profile, and the host's time between them."""

    def __init__(self, step: ProfiledStep, graphs: Sequence[GraphRecord], last_resorts: Sequence[str]):
        self.known, self.last_resorts, self.has_device = graphs, last_resorts, bool(step.device)
        self.kernels: list[_Kernel] = []
        self.graphs: list[Span] = []
        self._outer: list[Span] = []  # operators outside of graphs
        self._walk(step.spans, "")
        within = sum(graph.seconds for graph in self.graphs)
        self.outside = max(step.seconds - within - sum(span.seconds for span in self._outer), 0.0)

    @property
    def between(self) -> float:
        """The seconds between graphs of the same direction that follow each other, without operators there."""
        ordered = sorted(self.graphs, key=lambda g: g.start)
        gaps = [(a.end, b.start) for a, b in pairwise(ordered) if _kind(a) == _kind(b)]
        operators = sum(s.seconds for s in self._outer for start, end in gaps if start <= s.start < end)
        return max(sum(end - start for start, end in gaps) - operators, 0.0)

    def _walk(self, spans: Sequence[Span], graph: str) -> None:
        for span in spans:
            named = _RANGE.fullmatch(span.name)
            if _GRAPH.fullmatch(span.name):
                self.graphs.append(span)
                self._walk(span.inside, span.name)
            elif named and _PART.fullmatch(named["what"]):
                self._part(span, graph)
            elif _OPERATOR.fullmatch(span.name):
                if not graph:
                    self._outer.append(span)
                self._add(span, _Key("", "", span.name, graph), not span.launched, None, span.name == _COPY)
            else:
                self._walk(span.inside, graph)

    def _part(self, span: Span, graph: str) -> None:
        ranges = [*_matching(span, _RANGE)]
        part = self._work(graph, span.name, [inner.name for inner in ranges])
        on_host = part is None or part.is_on_host
        named = _RANGE.fullmatch(span.name)
        assert named is not None
        backend, module = named["backend"], named["module"]
        if ranges:
            for inner, launch in zip(ranges, _launches(part, ranges), strict=True):
                one = _RANGE.fullmatch(inner.name)
                assert one is not None
                key = _Key(backend, one["module"], one["what"], graph)
                work, is_move = (None, False) if launch is None else (launch.work, launch.is_move)
                self._add(inner, key, on_host, work, is_move)
            for inner in _outermost(span, _OPERATOR, _RANGE):
                for copy in _matching(inner, re.compile(re.escape(_COPY))) if inner.name != _COPY else (inner,):
                    self._add(copy, _Key(backend, module, _COPY, graph), on_host, None, True)
        elif backend in self.last_resorts and (operators := [*_outermost(span, _OPERATOR, _RANGE)]):
            works = {} if part is None else {name: [*several] for name, several in part.calls.items()}
            for inner in operators:
                key = _Key(backend, module, inner.name, graph)
                self._add(inner, key, on_host, _next_work(works, inner.name), inner.name == _COPY)
        elif part is None or part.launches is None:
            key = _Key(backend, module, named["what"], graph)
            self._add(span, key, on_host, None if part is None else part.work, False)

    def _add(self, span: Span, key: _Key, on_host: bool, work: Work | None, is_move: bool) -> None:
        on_host = on_host or not self.has_device
        self.kernels.append(_Kernel(key, span.seconds if on_host else span.launched, on_host, work, is_move))

    def _work(self, graph: str, label: str, launched: Sequence[str]) -> PartWork | None:
        """The part that a range shows. If several have its name, the first with the same launches."""
        same = [part for each in self.known if each.name == graph for part in each.parts if part.label == label]
        fitting = [part for part in same if [each.label for each in part.launches or ()] == launched]
        return next(iter((*fitting, *same)), None)


def _launches(part: PartWork | None, ranges: Sequence[Span]) -> list[Launch | None]:
    """The launch that each range shows; None if it is unknown."""
    known = () if part is None else part.launches or ()
    if [launch.label for launch in known] == [span.name for span in ranges]:
        return [*known]
    by_label = {launch.label: launch for launch in known}
    return [by_label.get(span.name) for span in ranges]


def _next_work(works: dict[str, list[Work]], operator: str) -> Work | None:
    """Takes the work of the next call of an operator, which the profiler shows as ``aten::relu``."""
    packet = operator.replace("::", ".") + "."
    several = next((several for name, several in works.items() if several and name.startswith(packet)), None)
    return several.pop(0) if several else None


def _matching(span: Span, name: re.Pattern[str]) -> Iterator[Span]:
    """The outermost spans inside a span whose names match."""
    for inner in span.inside:
        if name.fullmatch(inner.name):
            yield inner
        else:
            yield from _matching(inner, name)


def _outermost(span: Span, name: re.Pattern[str], without: re.Pattern[str]) -> Iterator[Span]:
    """The same, without spans inside those that match ``without``."""
    for inner in span.inside:
        if name.fullmatch(inner.name):
            yield inner
        elif not without.fullmatch(inner.name):
            yield from _outermost(inner, name, without)


def _busy(step: ProfiledStep, kernels: Sequence[_Kernel]) -> float:
    """The seconds in which a kernel runs: on the host, or on an accelerator at the same time as others."""
    end, busy = 0.0, sum(k.seconds for k in kernels if k.is_on_host)
    for start, stop in sorted(step.device):
        busy += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return min(busy, step.seconds)


def _kernels(
    steps: Sequence[_Occurrences], sheets: Mapping[str, Cost], last_resorts: Sequence[str], scale: float
) -> tuple[KernelTime, ...]:
    """The kernels of all steps, those that take longest first, with their times multiplied by ``scale``."""
    by_key: dict[_Key, list[list[_Kernel]]] = {}
    for n, one in enumerate(steps):
        for kernel in one.kernels:
            by_key.setdefault(kernel.key, [[] for _ in steps])[n].append(kernel)
    made = [_kernel_time(key, several, sheets, last_resorts) for key, several in by_key.items()]
    scaled = (replace(k, seconds=scale * k.seconds) for k in _alike(made))
    return tuple(sorted(scaled, key=lambda k: -k.seconds))


def _kernel_time(
    key: _Key, steps: Sequence[Sequence[_Kernel]], sheets: Mapping[str, Cost], last_resorts: Sequence[str]
) -> KernelTime:
    """What a kernel takes in each of several steps."""
    first = next(same for same in steps if same)
    works = [k.work for k in first if k.work is not None]
    work = total(works) if len(works) == len(first) else None
    # The sheet of a backend of last resort is about the host.
    sheet = None if key.backend in last_resorts and not first[0].is_on_host else sheets.get(key.backend)
    return KernelTime(
        key.backend,
        key.module,
        key.name,
        key.graph,
        median(len(same) for same in steps),
        median(sum(k.seconds for k in same) for same in steps),
        None if work is None else work.bytes,
        None if work is None else sum(work.flops.values()),
        None if work is None or sheet is None else roof(work, sheet),
        first[0].is_move,
    )


def _alike(kernels: Sequence[KernelTime]) -> Iterator[KernelTime]:
    """The kernels, those together that do the same for modules whose paths differ only in numbers."""
    groups: dict[Any, list[KernelTime]] = {}
    for k in kernels:
        each = None if k.bytes is None or k.flops is None else (k.bytes / (k.calls or 1), k.flops / (k.calls or 1))
        kind = _GRAPH.sub(r"\1", k.graph)
        key = k.backend, _NUMBER.sub("*", k.module), _NODE.sub("", k.name), kind, each, k.is_move
        groups.setdefault(key, []).append(k)
    for same in groups.values():
        roofs = [k.roof for k in same if k.roof is not None]
        yield replace(
            same[0],
            module=common_pattern([k.module for k in same]),
            name=same[0].name if len(same) == 1 else _NODE.sub("", same[0].name),
            calls=sum(k.calls for k in same),
            seconds=sum(k.seconds for k in same),
            bytes=None if same[0].bytes is None else sum(k.bytes or 0.0 for k in same),
            flops=None if same[0].flops is None else sum(k.flops or 0.0 for k in same),
            roof=replace(roofs[0], seconds=sum(r.seconds for r in roofs)) if len(roofs) == len(same) else None,
        )


def _kind(graph: Span) -> bool:
    return graph.name.startswith("keel backward")
