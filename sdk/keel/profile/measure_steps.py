"""Measures the steps of a model: without a profiler next to eager PyTorch and Inductor, and then with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import nn

from keel.compiler import DynamoBackend
from keel.errors import first_line
from keel.events import Event, EventLog, GraphCompiled, PartsBuilt, each_of
from keel.explanation import run_backward, tensors_in
from keel.graph.size_hints import typical_sizes
from keel.profile.part_work import PartWork, bytes_of, part_work
from keel.profile.profile_record import Crossing, GraphRecord, ProfiledStep, ProfileRecord
from keel.profile.profiled_steps import STEP, profiled_steps
from keel.refusal_reports import passed_over, refusal_reports
from keel.runtime.accelerators import synchronize
from keel.settings import Settings
from keel.torch_adapter import DynamoFacts, graph_range

KEEL, EAGER, INDUCTOR = "keel", "eager", "inductor"
WARM_UP = 16
"""The most steps before the first that is timed."""
SETTLED = 2
"""The number of steps in succession that compile nothing before the first that is timed."""
PROFILED = 5
"""The number of steps under the profiler."""
FEWEST, LONGEST = 3, 60.0
"""Timing ends after this many seconds, if each compiler has run this many steps."""


@dataclass
class _Step:
    """One step of a model, by any compiler: the function and, if a result needs gradients, its backward pass."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    inference: bool
    is_training: bool = False
    _ones: dict[Any, torch.Tensor] = field(default_factory=dict)

    def __call__(self, run: Callable[..., Any]) -> None:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.inference):
            results = run(*self.args, **self.kwargs)
            if not self.inference:
                gradients = run_backward(results, self.fn, self.args, self.kwargs, self._gradient)
                self.is_training = bool(gradients)

    def finish(self) -> None:
        """Waits for what the step launched on accelerators."""
        owned = [*self.fn.parameters(), *self.fn.buffers()] if isinstance(self.fn, nn.Module) else []
        synchronize({t.device for t in (*tensors_in((self.args, self.kwargs)), *owned)})

    def _gradient(self, result: torch.Tensor) -> torch.Tensor:
        """A gradient of ones, which is made once for all steps, because it is not the model's."""
        key = result.shape, result.dtype, result.device
        if key not in self._ones:
            self._ones[key] = torch.ones_like(result)
        return self._ones[key]


@dataclass
class _Watched:
    """The steps of Keel: what Dynamo reports of them, and which of them compiled something."""

    facts: DynamoFacts = field(default_factory=DynamoFacts)
    log: EventLog = field(default_factory=EventLog)
    steps: int = 0
    compiled_in: list[int] = field(default_factory=list)
    _parts: dict[str, list[PartWork]] = field(default_factory=dict)  # by the range of their graph
    _names: dict[int, str] = field(default_factory=dict)  # the range of a graph; ``log`` holds the graph, and so its id

    def listen(self, event: Event) -> None:
        match event:
            case PartsBuilt(kind, parts):
                self._parts.setdefault(graph_range(kind), []).extend(map(part_work, parts))
            case GraphCompiled():
                self._names[id(event.captured)] = graph_range(event.kind)

    def graphs(self) -> Iterator[GraphRecord]:
        """The graphs with the plans that they run."""
        for graph in self.log.graphs:
            name = self._names[id(graph.captured)]
            refused = tuple(refusal_reports(graph.gm, graph.plan))
            parts, over = tuple(self._parts.get(name, ())), passed_over(graph.gm, graph.plan)
            yield GraphRecord(name, parts, refused, tuple(crossings(graph, name)), over)

    def seconds(self, step: _Step, run: Callable[..., Any]) -> tuple[float, bool]:
        """The seconds of a step, and whether it compiled something."""
        before = self.facts.count
        with self.facts.collecting():
            seconds = _seconds(step, run)
        has_compiled = self.facts.count > before
        if has_compiled:
            self.compiled_in.append(self.steps)
        self.steps += 1
        return seconds, has_compiled


def crossings(graph: GraphCompiled, name: str) -> Iterator[Crossing]:
    """The tensors that pass between backends in one call of a graph, whose range is ``name``."""
    nodes, sizes = {n.name: n for n in graph.gm.graph.nodes}, typical_sizes(graph.gm.graph)
    makers = {output: part.owner for part in graph.parts for output in part.outputs}
    passed = {
        (makers[value], part.owner, value)
        for part in graph.parts
        for value in part.inputs
        if makers.get(value, part.owner) != part.owner
    }
    counted: dict[tuple[str, str], float] = {}
    for source, target, value in sorted(passed):
        counted[source, target] = counted.get((source, target), 0.0) + bytes_of(nodes[value], sizes)
    yield from (Crossing(name, *ends, amount) for ends, amount in counted.items())


def measure(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    settings: Settings,
    *,
    steps: int,
    inference: bool,
    dynamic: bool | None,
    inductor: bool,
    trace: Path | None,
) -> ProfileRecord:
    """Measures ``steps`` steps of each compiler in turns, then some of Keel's under the profiler. ``trace`` is a file
    for its trace. Raises what compiling for Keel raises, and what the model raises.
    """
    step, keel = _Step(fn, args, kwargs, inference), _Watched()
    backend = DynamoBackend(settings, each_of(keel.log, keel.listen))
    runs = {EAGER: fn, KEEL: torch.compile(fn, backend=backend, dynamic=dynamic)}
    notes = _settle(step, runs[KEEL], keel)
    step(fn)
    if inductor:
        compiled = torch.compile(fn, dynamic=dynamic)
        try:
            _settle(step, compiled, _Watched())
            runs[INDUCTOR] = compiled
        except Exception as raised:  # what Inductor raises for a model that it cannot compile
            notes.append(f"Inductor is not compared, because it failed: {first_line(raised)}")
    times = _times(step, runs, keel, steps)
    return ProfileRecord(
        tuple(b.name for b in settings.backends),
        tuple(b.name for b in settings.backends if b.last_resort),
        step.is_training,
        times,
        _profiled(step, runs[KEEL], trace),
        tuple(keel.graphs()),
        tuple(keel.facts.breaks),
        tuple(keel.facts.compilations),
        keel.steps,
        tuple(keel.compiled_in),
        {b.name: b.cost for b in settings.backends if b.cost is not None},
        tuple(notes),
    )


def _settle(step: _Step, run: Callable[..., Any], watched: _Watched) -> list[str]:
    """Runs steps until nothing is compiled. Returns a note if there is no end of it."""
    quiet = 0
    for _ in range(WARM_UP):
        _, has_compiled = watched.seconds(step, run)
        quiet = 0 if has_compiled or watched.log.is_timing else quiet + 1
        if quiet == SETTLED:
            return []
    return [f"The model was still being compiled in step {WARM_UP}, so its times are those of compiling, too."]


def _times(
    step: _Step, runs: Mapping[str, Callable[..., Any]], keel: _Watched, steps: int
) -> dict[str, tuple[float, ...]]:
    """The seconds of steps by compiler, in turns. Those of Keel that compile something count only if all do."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    compiling: list[float] = []
    began = perf_counter()
    for n in range(steps):
        if n >= FEWEST and perf_counter() - began > LONGEST:
            break
        for name, run in runs.items():
            if name != KEEL:
                times[name].append(_seconds(step, run))
                continue
            seconds, has_compiled = keel.seconds(step, run)
            (compiling if has_compiled else times[name]).append(seconds)
    times[KEEL] = times[KEEL] or compiling
    return {name: tuple(seconds) for name, seconds in times.items()}


def _seconds(step: _Step, run: Callable[..., Any]) -> float:
    step.finish()
    began = perf_counter()
    step(run)
    step.finish()
    return perf_counter() - began


def _profiled(step: _Step, run: Callable[..., Any], trace: Path | None) -> tuple[ProfiledStep, ...]:
    with torch.profiler.profile(acc_events=True):  # compiled functions write the form that names its ranges
        step(run)
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profiler:
        for n in range(PROFILED):
            step.finish()
            with torch.profiler.record_function(f"{STEP} {n}"):
                step(run)
                step.finish()
    with TemporaryDirectory() as folder:
        file = trace or Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return profiled_steps(profiler.events(), file, has_counters=trace is not None)
