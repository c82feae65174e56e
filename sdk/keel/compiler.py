"""The compiler, top to bottom: capture, legalize, place, compile each part, link."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import sympy
from torch import fx

from keel import dump
from keel.artifact.graph_cache import cache_entry, in_pytorch_cache, is_cache_on
from keel.artifact.saved_graph import restoring_with, saves_of
from keel.errors import KeelError, KeelWarning
from keel.events import (
    AutotuneSkipped,
    AutotuneStarted,
    Event,
    GraphCompiled,
    GraphLoaded,
    Listener,
    PartsBuilt,
    PlanSelected,
    StageStarted,
    each_of,
    ignore,
)
from keel.freeze import frozen
from keel.fuel import Fuel
from keel.graph.decomposed_calls import Decompositions
from keel.graph.deterministic import fill_fresh_memory, is_filled
from keel.graph.eager_segments import in_order, segments
from keel.graph.legalize import legalize
from keel.graph.opset_check import reject_excluded_inputs, untyped_calls, warn_of_eager_calls
from keel.graph.purity import why_not_rerunnable
from keel.graph.tensor_devices import device_types, devices_of
from keel.graph.verify import verify
from keel.interpreter import in_one_chunk, no_collection
from keel.logs import log_event
from keel.number_checks import number_checks
from keel.placement.faults import Fault
from keel.placement.part_graphs import build_part_graphs
from keel.placement.placement import Plan
from keel.plugin import Backend
from keel.progress import shown_progress
from keel.refusal_reports import warn_of_idle_backends
from keel.repro_folder import write_wrong_call, written_ahead
from keel.runtime.autotune import Candidate, PlanTiming, autotuned, reason
from keel.runtime.compile_parts import PartFailure, Runs, compile_parts, report_failures
from keel.runtime.contract_checks import is_checking_every_call
from keel.runtime.freed_memory import give_back_freed_memory
from keel.runtime.link import link
from keel.runtime.link_program import LinkProgram, link_program
from keel.runtime.part_context import PartContexts, common_context
from keel.runtime.part_interface import BuiltPart, Watch
from keel.saved_images import saved_images
from keel.selection import Planner, Selection
from keel.settings import Settings, with_plugins
from keel.stages import Stages
from keel.torch_adapter import (
    Boxed,
    Captured,
    GraphPair,
    Saves,
    capture,
    compiled_graphs,
    expects_backward,
    guards_of,
    has_effect,
    is_random,
    is_saved_by_force,
    unwrapped,
)
from keel.warm_up import warm_up

__all__ = ["DynamoBackend", "compile_captured", "compile_graph", "compiled_graphs"]

WITHIN = 1.5
"""A plan on one backend is timed against the placement by cost if it is predicted to take at most this many times as
long: data sheets are seldom further off, and a plan that is timed has to be compiled."""


@dataclass(frozen=True)
class DynamoBackend:
    """The backend that Dynamo calls: Keel with its settings. ``watch`` watches the calls of parts."""

    __name__ = "keel"

    settings: Settings
    listen: Listener = ignore
    watch: Watch | None = None

    @in_one_chunk
    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        settings = with_plugins(self.settings, device_types(gm.graph))
        watch = self.watch or number_checks(strict=settings.strict, save=partial(write_wrong_call, settings))
        graphs = GraphPair() if settings.replays_graphs and not _is_watched(watch) else None

        def compiler(captured: Captured) -> Boxed:
            if settings.freeze and captured.kind == "inference":
                captured, with_all_inputs = frozen(captured)
                return with_all_inputs(compile_and_record(captured))
            return compile_and_record(captured)

        def compile_and_record(captured: Captured) -> Boxed:
            owners, listen = Owners(), self.listen
            if graphs is not None and not all(backend.capturable for backend in settings.backends):
                listen = each_of(owners, listen)
            run = written_ahead(captured, settings, listen, lambda to: compile_captured(captured, settings, to, watch))
            if graphs is None:
                return run
            return graphs.replayed(run, captured, getattr(run, "decided", lambda: True), owners.why_not_captured)

        warm_up(settings.backends)
        with unwrapped(), no_collection():
            reject_excluded_inputs(gm)
            images = partial(saved_images, backends=settings.backends, by_cost=settings.placement != "order")
            is_saved = watch is None or is_saved_by_force()
            saves = self._saves(settings, example_inputs) if is_saved else None
            with restoring_with(settings):
                run = capture(gm, example_inputs, compiler, images, Decompositions(settings.backends), saves)
        give_back_freed_memory()
        return run

    def _saves(self, settings: Settings, example_inputs: Sequence[Any]) -> Saves | None:
        """How PyTorch saves what is compiled. Listeners get the whole graph, so with one nothing is loaded. Reading
        PyTorch's cache imports much of Inductor. That pays if a joint graph would be traced, and costs more than
        tracing an inference graph.
        """
        is_wanted = is_cache_on() and (in_pytorch_cache() or expects_backward(example_inputs))
        return saves_of(settings) if is_saved_by_force() or (is_wanted and self.listen is ignore) else None


class Owners:
    """A listener that notes which backends run parts of the graphs."""

    def __init__(self) -> None:
        self.backends = dict[str, Backend]()

    def __call__(self, event: Event) -> None:
        if isinstance(event, GraphCompiled | PlanSelected):
            plan = event.plan if isinstance(event, GraphCompiled) else event.graph.plan
            self.backends |= {part.owner.name: part.owner for part in plan.parts}

    def why_not_captured(self) -> str | None:
        """A sentence about a backend whose work cannot be captured; None if all of it can be."""
        name = next((name for name, backend in self.backends.items() if not backend.capturable), None)
        return None if name is None else f"Work of the backend {name} cannot be captured."


class GraphStore(Protocol):
    """What stores a compiled graph. Making its key took ``seconds``."""

    @property
    def captured(self) -> Captured: ...

    @property
    def seconds(self) -> float: ...

    def stored(
        self, run: Boxed, program: LinkProgram, parts: Sequence[BuiltPart], guards: Sequence[sympy.Basic]
    ) -> Boxed:
        """Stores a compiled graph with the guards that compiling it added. Returns ``run``, or what stands for it."""


@in_one_chunk
@no_collection()
def compile_for(store: GraphStore, settings: Settings, listen: Listener) -> Boxed:
    """Compiles the captured graph of a store, which stores it unless a backend fails. Raises KeelError[bad-graph] for a
    graph with calls that are not compiled.
    """
    captured = store.captured
    if eager := untyped_calls(captured.gm):
        raise next(iter(eager.values()))
    if segments(captured, eager):
        raise KeelError(
            "bad-graph",
            "The graph cannot be saved.",
            {"keel": "It has calls on streams or events, which run in eager."},
        )
    return _without_faulty_backends(captured, settings, listen, store)


@in_one_chunk
@no_collection()
def compile_captured(
    captured: Captured, settings: Settings, listen: Listener = ignore, watch: Watch | None = None
) -> Boxed:
    """Compiles a captured graph to a callable. Calls on streams, events, or values without a type are not compiled;
    each graph between them is compiled by itself. If a backend contradicts itself, or its data sheet fails, the graph
    is compiled again without the backend or the sheet, with a KeelWarning. Under ``strict`` that is
    KeelError[refuse-raised] or KeelError[cost-raised].
    """
    eager = untyped_calls(captured.gm)
    if eager and settings.strict:
        raise next(iter(eager.values()))
    if steps := segments(captured, eager):
        if eager:
            warn_of_eager_calls(eager)
        return in_order(captured, steps, partial(compile_captured, settings=settings, listen=listen, watch=watch))
    # Listeners get the whole graph, and a watch those of the parts, so with one the graph is always compiled.
    entry = cache_entry(captured, settings) if listen is ignore and watch is None else None
    began = perf_counter()
    with nullcontext() if entry is None else entry.recording():
        if entry is not None and (loaded := entry.load()) is not None:
            run, parts = loaded
            seconds = {"capture": captured.seconds} if captured.seconds else {}
            seconds |= {"key": entry.seconds, "load": perf_counter() - began}
            log_event(GraphLoaded(captured.kind, tuple(parts), seconds))
            return run
        with shown_progress(captured.kind) as progress:
            without_sheet = {b.name for b in settings.backends if b.cost is None}
            reported = partial(warn_of_idle_backends, without_sheet) if listen is ignore else listen
            return _without_faulty_backends(captured, settings, each_of(progress, log_event, reported), entry, watch)


def _without_faulty_backends(
    captured: Captured, settings: Settings, listen: Listener, entry: GraphStore | None, watch: Watch | None = None
) -> Boxed:
    """Compiles a graph, and again without each backend that contradicts itself."""
    folder = dump.folder(captured.kind)
    faults: list[Fault] = []
    while True:
        try:
            run = compile_graph(captured, settings, folder, listen, None if faults else entry, watch)
        except Fault as fault:
            if settings.strict:
                raise fault.error from fault.__cause__
            faults.append(fault)
            settings = replace(settings, backends=fault.without(settings.backends))
        except KeelError as raised:
            if raised.code == "no-owner" and faults:  # no other backend takes the calls of a backend that was left out
                raise faults[-1].error from raised
            raise
        else:
            for each in faults:
                each.error.do = f"{each.instead} strict=True makes this an error."
                warnings.warn(str(each.error), KeelWarning, stacklevel=2)
            return run


def compile_graph(
    captured: Captured,
    settings: Settings,
    folder: Path | None,
    listen: Listener,
    entry: GraphStore | None = None,
    watch: Watch | None = None,
) -> Boxed:
    """The whole pipeline for one captured graph, which is stored in its ``entry``, if it has one and no backend
    failed. A ``watch`` gets its parts. Raises ``Fault`` if a backend is unreliable.
    """
    guards = len(guards_of(captured.fake_mode))
    # Capture has been done; its result is checked like that of every other stage.
    stages = Stages(captured, folder, listen, {} if entry is None else {"key": entry.seconds})
    stages.write("captured", lambda: dump.graph_text(captured.gm))
    verify(captured.gm, "capture")
    if is_filled():
        fill_fresh_memory(captured.gm, captured.fake_mode)

    # Legalize: a call that some backend takes stays whole, any other is decomposed.
    stages.begin("legalize")
    planner = Planner(captured, settings)
    legalized = legalize(captured, planner.backends, strict=settings.strict)

    # Place: choose the cheapest form of the graph and an owner for each call.
    stages.begin("place")
    selection = planner.select(legalized)
    gm = selection.gm
    stages.write("legalized", lambda: dump.graph_text(gm))
    verify(gm, "legalization")
    plan, reliable = planner.verified(gm, selection.plan), not planner.support.warn()
    stages.write("placed", lambda: dump.json_text(plan.as_json()))

    # Compile parts. If a backend cannot compile one, place the graph again without that claim.
    stages.begin("compile")
    ctx = common_context(captured, dump=folder, fuel=settings.fuel, spends_memory=settings.spends_memory)
    contexts = PartContexts(ctx, dict(settings.options))
    compiled, failures = Runs(), list[PartFailure]()
    while True:
        contexts = contexts.with_common(**_writable(captured, gm, plan, _repeats_calls(settings, watch)))
        built, failed = compile_parts(gm, plan, contexts, compiled, strict=settings.strict, report=listen)
        if not failed:
            break
        plan, avoided = planner.replan(gm, plan, failed)
        failures += avoided

    # Link: one flat function that calls the parts in order.
    parts = report_failures(plan, [part.linked() for part in built], failures)
    parts = parts if watch is None else watch(captured.kind, build_part_graphs(gm, plan), built, parts)
    stages.trace("parts", lambda: dump.json_text([part.as_json() for part in parts]))
    stages.begin("link")
    program = link_program(gm, captured.constants)
    run = link(program, parts, captured.constants)
    run = _stored(entry if reliable and not failures else None, stages, run, program, built, guards)
    stages.end()
    known = planner.constants, stages.seconds, planner.price
    graph = GraphCompiled(captured.kind, captured.gm, gm, plan, tuple(parts), *known)
    listen(graph)
    is_measured = settings.placement == "measured"
    return _autotune(graph, run, selection, planner, contexts, listen) if is_measured else run


def _stored(
    entry: GraphStore | None,
    stages: Stages,
    run: Boxed,
    program: LinkProgram,
    built: Sequence[BuiltPart],
    guards: int,
) -> Boxed:
    """Stores a compiled graph in its entry, if it has one, shows its parts to listeners, and frees what only these
    need. ``guards`` is the number of guards before it was compiled.
    """
    if entry is not None:
        stages.begin("store")
        run = entry.stored(run, program, built, guards_of(entry.captured.fake_mode)[guards:])
    stages.listen(PartsBuilt(stages.kind, tuple(built)))
    for part in built:
        part.forget_program()
    return run


def _writable(captured: Captured, gm: fx.GraphModule, plan: Plan, repeats: bool) -> dict[str, Any]:
    """What parts may write to besides their results. Nothing if a call may be repeated, so that its inputs must stay as
    they are.
    """
    if repeats:
        return {"overwrites": {}, "donated": frozenset()}
    return {"overwrites": _overwrites(captured, gm, plan), "donated": _donated(captured, gm, plan)}


def _repeats_calls(settings: Settings, watch: Watch | None) -> bool:
    """True if calls may be repeated, watched or compared."""
    return settings.replays_graphs or settings.placement == "measured" or _is_watched(watch)


def _is_watched(watch: Watch | None) -> bool:
    """True if calls of parts are watched or checked."""
    return watch is not None or is_checking_every_call()


def _overwrites(captured: Captured, gm: fx.GraphModule, plan: Plan) -> Mapping[str, str]:
    """The results that may be written over an input, with the input, by name. After an error each input must be whole,
    old or new, so a graph that may stop between kernels, at an assertion or another part, overwrites nothing.
    """
    stops = any(n.op == "call_function" and has_effect(n.target) and not is_random(n.target) for n in gm.graph.nodes)
    if not captured.overwrites or stops or len(plan.parts) != 1:
        return {}
    inputs = gm.graph.find_nodes(op="placeholder")
    results: Sequence[Any] = gm.graph.output_node().args[0]  # type: ignore[assignment]
    return {results[r].name: inputs[i].name for r, i in captured.overwrites if isinstance(results[r], fx.Node)}


def _donated(captured: Captured, gm: fx.GraphModule, plan: Plan) -> frozenset[str]:
    """The saved tensors that a part of a backward graph may overwrite: those that only one part reads."""
    if not captured.donated:
        return frozenset()
    part_of = {name: number for number, part in enumerate(plan.parts) for name in part.nodes}
    inputs = (n for n in gm.graph.find_nodes(op="placeholder") if n.name in captured.donated)
    readers = {n.name: {part_of.get(user.name) for user in n.users} for n in inputs}
    return frozenset(name for name, parts in readers.items() if len(parts) == 1 and None not in parts)


def _autotune(
    graph: GraphCompiled,
    run: Boxed,
    selection: Selection,
    planner: Planner,
    contexts: PartContexts,
    listen: Listener,
) -> Boxed:
    """Wraps ``run`` so that the first calls time it against plans of single backends. Returns ``run`` if no such plan
    exists.
    """
    if once := why_not_rerunnable(graph.captured.graph):
        listen(AutotuneSkipped(graph, f"The graph may run only once: {once}"))
        return run
    rivals = selection.rivals(graph.plan, WITHIN)
    if not rivals:
        sentence = "No single backend takes the whole graph and is predicted to be nearly as fast."
        listen(AutotuneSkipped(graph, sentence))
        return run
    listen(AutotuneStarted(graph))
    listen(StageStarted("rivals"))
    ctx = contexts.common
    candidates, failed = [_candidate(graph, run, ctx.dump, listen)], list[PlanTiming]()
    for gm, plan in rivals:
        verify(gm, "legalization")
        plan = planner.verified(gm, plan)
        inside = dump.inside(ctx.dump, f"alone-{plan.parts[0].owner.name}")
        dump.write(inside, "legalized", partial(dump.graph_text, gm))
        own = contexts.with_common(dump=inside, fuel=Fuel(ctx.fuel.left))
        built, failures = compile_parts(gm, plan, own, {}, strict=True, report=listen)
        if failures:
            failed.append(replace(_expected(plan), why=reason(failures[0].error)))
            continue
        parts = [part.linked() for part in built]
        for each in built:
            each.forget_program()
        rival = replace(graph, gm=gm, plan=plan, parts=tuple(parts))
        constants = planner.captured.constants
        run = link(link_program(gm, constants), parts, constants)
        candidates.append(_candidate(rival, run, ctx.dump, listen))
    return autotuned(candidates, failed, devices_of(graph.captured.graph))


def _candidate(graph: GraphCompiled, run: Boxed, folder: Path | None, listen: Listener) -> Candidate:
    def selected(timings: tuple[PlanTiming, ...]) -> None:
        def text() -> str:
            return dump.json_text({"tried": [asdict(each) for each in timings], "kept": graph.plan.as_json()})

        dump.write(folder, "autotuned", text)
        listen(PlanSelected(graph, timings))

    return Candidate(_expected(graph.plan), run, selected)


def _expected(plan: Plan) -> PlanTiming:
    owners = tuple(sorted({part.owner.name for part in plan.parts}))
    return PlanTiming(owners, math.inf if plan.claim is None else plan.claim.seconds)
