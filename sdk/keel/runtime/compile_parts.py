"""Compiles parts with their owners. Reports each part that its owner cannot compile, so that the next plan
avoids it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from keel.errors import KeelError, KeelWarning, count, first_line
from keel.graph.calls import source_line
from keel.graph.module_paths import module_path, range_name
from keel.interrupts import is_interrupt
from keel.placement.part_graphs import PartGraph, build_part_graphs
from keel.placement.placement import Part, Plan, Refusals
from keel.plugin import Backend, CompileContext, Refusal, with_context
from keel.runtime.contract_checks import PartContract, Run, contract_of
from keel.runtime.last_resorts import compile_instead
from keel.runtime.link import CompiledPart
from keel.runtime.parallel_compile import CompileResult, compile_parallel
from keel.runtime.part_context import PartContexts
from keel.runtime.part_interface import BuiltPart, PartInterface
from keel.runtime.part_progress import PartCounter, Report, no_report
from keel.runtime.prepared_constants import runnable
from keel.runtime.result_views import ViewedPart, separate_views
from keel.torch_adapter import asks_again, real_tensors

Runs = dict[Any, Run]
"""Compiled parts, which are kept from one plan of a graph to the next."""


@dataclass(frozen=True)
class PartFailure:
    """A part that its backend could not compile: the exception that was raised, and the error for the user."""

    part: Part
    error: KeelError
    raised: BaseException


def compile_parts(
    gm: fx.GraphModule,
    plan: Plan,
    contexts: PartContexts,
    compiled: Runs,
    *,
    strict: bool = False,
    report: Report = no_report,
) -> tuple[list[BuiltPart], list[PartFailure]]:
    """Compiles the parts of ``plan``, each with its context. If a backend cannot compile a part, returns the failures
    and no parts.

    ``compiled`` keeps parts for the next plan: an unchanged part is not compiled twice. Those of ``Staged`` backends
    are compiled in parallel. After a failure, only the other parts of that backend are tried: the next plan may join
    the rest in other ways. A request to Dynamo to trace again is not a failure and is passed on, as are the user's
    exceptions, such as Ctrl-C. ``report`` is called with the progress.
    """
    complete = build_part_graphs(gm, plan)
    viewed = _with_views(complete)
    graphs = [viewed[each.part.name].values if each.part.name in viewed else each for each in complete]
    promises = [(_contract(full), _contract(graph)) for full, graph in zip(complete, graphs, strict=True)]
    compiled |= {_key(view.values): _nothing for view in viewed.values() if view.is_all}
    todo = {graph.part.name: graph for graph in graphs if _key(graph) not in compiled}
    own = {graph.part.name: contexts.of(graph) for graph in graphs}
    counter = PartCounter(len(todo), report)
    results = compile_parallel(list(todo.values()), own, counter)
    last = () if strict else tuple(b for b in plan.backends if b.last_resort)
    parts: list[BuiltPart] = []
    failed: list[tuple[Part, BaseException]] = []
    for full, graph, (promised, computed) in zip(complete, graphs, promises, strict=True):
        part, key = graph.part, _key(graph)
        if failed and not _is_tried_after(failed, part, results):
            continue
        try:
            if key not in compiled:
                compiled[key] = compiled_part(graph, own[part.name], results.get(part.name), last)
                if part.name not in results:
                    counter.compiled()
        except BaseException as raised:
            if is_interrupt(raised) or (isinstance(raised, Exception) and asks_again(raised)):
                raise
            failed.append((part, raised))
        else:
            interface = PartInterface(
                part.name,
                full.inputs,
                full.outputs,
                _label(full),
                promised,
                computed if part.owner.any_layout else None,
                viewed[part.name].views if part.name in viewed else None,
                part.owner.last_resort and not strict,
            )
            parts.append(BuiltPart(interface, graph, own[part.name], compiled[key]))
    if not failed:
        return parts, []
    nodes = {node.name: node for node in gm.graph.nodes}
    return [], [PartFailure(part, _error(part, nodes, raised), raised) for part, raised in failed]


def _with_views(graphs: Sequence[PartGraph]) -> dict[str, ViewedPart]:
    """The parts of backends of any layout with results that are views, by name."""
    parts = ((graph, separate_views(graph)) for graph in graphs if graph.part.owner.any_layout)
    return {graph.part.name: part for graph, part in parts if part is not None}


def _contract(graph: PartGraph) -> PartContract:
    return contract_of(graph.gm, graph.part.owner.name, graph.part.name)


def _nothing(*inputs: Any) -> tuple[()]:
    return ()


def _is_tried_after(
    failed: Sequence[tuple[Part, BaseException]], part: Part, results: Mapping[str, CompileResult]
) -> bool:
    """True if a part is compiled although others failed: it is compiled already, or its backend is one that failed,
    whose other parts may fail too.
    """
    return part.name in results or any(part.owner is other.owner for other, _ in failed)


def _instead(owner_of: Mapping[str, Backend], nodes: Sequence[str]) -> str:
    owners = list(dict.fromkeys(owner_of[node].name for node in nodes))
    verb = "compiles" if len(owners) == 1 else "compile"
    return f"{' and '.join(owners)} {verb} it instead. strict=True makes this an error."


def report_failures(plan: Plan, parts: Sequence[CompiledPart], failures: Sequence[PartFailure]) -> list[CompiledPart]:
    """Warns of failures that ``plan`` avoids, once for each backend and kind of exception.  Returns the parts of the
    plan with the errors that are about their calls.
    """
    owner_of = plan.owner_of
    kinds: dict[tuple[str, str], list[PartFailure]] = {}
    for failure in failures:
        failure.error.do = _instead(owner_of, failure.part.nodes)
        kind = (failure.error.reasons or {})[failure.part.owner.name].partition(":")[0]
        kinds.setdefault((failure.part.owner.name, kind), []).append(failure)
    for (name, _), alike in kinds.items():
        first, error = alike[0].part, alike[0].error
        if len(alike) > 1:
            nodes = [node for failure in alike for node in failure.part.nodes]
            what = (
                f"{name} could not compile {len(alike)} parts of {count(len(nodes), 'call')}, which it had claimed; "
                f"the first was {first.name}."
            )
            error = KeelError(error.code, what, error.reasons, error.where, _instead(owner_of, nodes))
        warnings.warn(str(error), KeelWarning, stacklevel=3)
    nodes_of = {part.name: set(part.nodes) for part in plan.parts}
    return [
        replace(part, trouble=tuple(f.error for f in failures if not nodes_of[part.name].isdisjoint(f.part.nodes)))
        for part in parts
    ]


def _label(graph: PartGraph) -> str:
    """What profilers show of a part."""
    paths = (module_path(node) for node in graph.graph.nodes if node.op == "call_function")
    return range_name(graph.part.owner.name, paths, f"part {graph.part.name}")


def _key(graph: PartGraph) -> Any:
    """The cache key of a part: equal keys compile to the same code."""
    return graph.part.owner.name, graph.part.nodes, graph.part.fusions, graph.outputs


def compiled_part(
    graph: PartGraph, ctx: CompileContext, result: CompileResult | None, others: Sequence[Backend]
) -> Run:
    """Compiles a part, or uses the result that was compiled in parallel. The backend's exceptions are passed on. If it
    cannot prepare the constants of the part, in a call, one of ``others`` compiles it.
    """
    if result is not None and result.raised is not None:
        raise result.raised
    with real_tensors():
        run = with_context(graph.part.owner.compile, ctx)(graph.gm) if result is None else result.run
    return runnable_part(run, graph, ctx, others)


def runnable_part(run: Any, graph: PartGraph, ctx: CompileContext, others: Sequence[Backend]) -> Run:
    """What the backend of a part made, as a function of all inputs of the part. If it cannot prepare the constants of
    the part, in a call, one of ``others`` compiles it. Raises TypeError if it cannot be called.
    """

    def instead(raised: BaseException) -> Run:
        error = _error(graph.part, {node.name: node for node in graph.graph.nodes}, raised, "prepare the constants of")
        return compile_instead(graph.gm, ctx, [b for b in others if b.name != graph.part.owner.name], error, raised)

    return runnable(run, graph.gm, ctx, instead)


def refusals_without(plan: Plan, failures: Sequence[PartFailure]) -> Refusals:
    """The refusals of a plan, with one added for each call of the parts that could not be compiled."""
    refusals = dict(plan.refusals)
    for failure in failures:
        name = failure.part.owner.name
        why = Refusal(f"{name} could not compile it: {(failure.error.reasons or {})[name]}")
        refusals |= {node: {**refusals.get(node, {}), name: why} for node in failure.part.nodes}
    return refusals


def _error(part: Part, nodes: Mapping[str, fx.Node], raised: BaseException, what: str = "compile") -> KeelError:
    """The error for a part whose backend raised ``raised``."""
    name, calls = part.owner.name, count(len(part.nodes), "call")
    return KeelError(
        "compile-raised",
        f"{name} could not {what} part {part.name} of {calls}, which it had claimed.",
        {name: first_line(raised)},
        next((line for node in part.nodes if (line := source_line(nodes[node]))), None),
        "This is a defect of the backend, for it claimed these calls. Leave it out, or add one that takes them.",
    )
