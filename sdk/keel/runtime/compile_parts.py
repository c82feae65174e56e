"""Parts compiled by their owners; where one raises, the graph is placed again without that claim."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from torch import fx

from keel.errors import KeelError, KeelWarning, first_line
from keel.graph.calls import source_line
from keel.interrupts import is_interrupt
from keel.placement.part_graphs import PartGraph, build_part_graphs
from keel.placement.placement import Part, Plan, Refusals
from keel.plugin import CompileContext, Refusal, with_context
from keel.runtime.contract_checks import (
    PartContract,
    Run,
    check_every_call,
    check_first_call,
    contract_of,
    is_checking_every_call,
)
from keel.runtime.link import CompiledPart
from keel.runtime.parallel_compile import CompileResult, compile_parallel
from keel.runtime.result_casts import CastResults
from keel.torch_adapter import asks_again

Again = Callable[[Refusals], Plan]
"""The graph placed again, with more refusals.  Raises KeelError where some call has no owner left."""
Failed = tuple[Part, BaseException]
"""A part that its backend could not compile, and what that raised."""


def compile_parts(
    gm: fx.GraphModule, plan: Plan, again: Again, *, strict: bool = False, ctx: CompileContext | None = None
) -> tuple[Plan, list[CompiledPart]]:
    """The parts of ``gm``, compiled, and the plan that they follow in the end.  Their backends are given ``ctx``.

    A backend that cannot compile a part refuses its calls from then on, with a KeelWarning, and the graph is placed
    ``again``; parts that stay as they were are not compiled twice.  Those of ``Staged`` backends are compiled beside
    each other, and of several parts that raise all are placed again at once.  Under ``strict``, or if that leaves a
    call without an owner, it is KeelError[compile-raised] of the first such part.  What asks Dynamo to trace
    again is no failure and goes through, and so does what is the user's: Ctrl-C, say.  There is one warning for each
    backend and kind of failure.
    """
    done: dict[Any, Run] = {}
    ctx = ctx or CompileContext()
    lost: list[tuple[Part, KeelError]] = []
    while True:
        made: list[CompiledPart] = []
        graphs = build_part_graphs(gm, plan)
        promises = [contract_of(graph.gm, graph.part.owner.name, graph.part.name) for graph in graphs]
        todo = {graph.part.name: graph for graph in graphs if _key(graph) not in done}
        found = compile_parallel(list(todo.values()), ctx)
        done |= {_key(todo[name]): each.run for name, each in found.items() if callable(each.run)}
        failed: list[Failed] = []
        for graph, promised in zip(graphs, promises, strict=True):
            part, key = graph.part, _key(graph)
            if failed and not _still_asked(part, found, failed):
                continue
            try:
                if key not in done:
                    done[key] = _compiled(graph, ctx, found.get(part.name))
            except BaseException as raised:
                if is_interrupt(raised) or (isinstance(raised, Exception) and asks_again(raised)):
                    raise
                failed.append((part, raised))
                continue
            if not failed:
                run = CastResults(done[key], promised) if part.owner.last_resort and not strict else done[key]
                made.append(_linkable(graph, run, promised, lost))
        if not failed:
            _tell(plan, lost)
            return plan, made
        plan, errors = _replaced(gm, plan, failed, again, strict)
        lost += zip((part for part, _ in failed), errors, strict=False)


def _still_asked(part: Part, found: Mapping[str, CompileResult], failed: Sequence[Failed]) -> bool:
    """Whether a part is compiled though others failed: it is already, or a backend that fails has it, whose parts may
    all fail.  Other parts may be joined by what is placed again, and are better compiled then."""
    return part.name in found or any(part.owner is other.owner for other, _ in failed)


def _replaced(
    gm: fx.GraphModule, plan: Plan, failed: Sequence[Failed], again: Again, strict: bool
) -> tuple[Plan, list[KeelError]]:
    """The plan without the claims of parts that could not be compiled, and the errors that say so, in their order.

    If that leaves a call without an owner, it is done for the first part alone: so the error is of the right one.
    """
    named = {node.name: node for node in gm.graph.nodes}
    errors = [_failed([named[name] for name in part.nodes], part, raised) for part, raised in failed]
    if strict:
        raise errors[0] from failed[0][1]
    try:
        placed = again(_without(plan, [part for part, _ in failed], errors))
    except KeelError:
        if len(failed) > 1:
            return _replaced(gm, plan, failed[:1], again, strict)
        raise errors[0] from failed[0][1]
    for (part, _), error in zip(failed, errors, strict=True):
        error.do = _instead(list(dict.fromkeys(placed.owner_of[node].name for node in part.nodes)))
    return placed, errors


def _instead(owners: Sequence[str]) -> str:
    verb = "compiles" if len(owners) == 1 else "compile"
    return f"{' and '.join(owners)} {verb} it instead. strict=True makes this an error."


def _tell(plan: Plan, lost: Sequence[tuple[Part, KeelError]]) -> None:
    """Warns of the parts that could not be compiled, once for each backend and kind of exception."""
    kinds: dict[tuple[str, str], list[tuple[Part, KeelError]]] = {}
    for part, error in lost:
        said = (error.reasons or {})[part.owner.name]
        kinds.setdefault((part.owner.name, said.partition(":")[0]), []).append((part, error))
    for (name, _), failed in kinds.items():
        part, error = failed[0]
        if len(failed) > 1:
            nodes = [node for each, _ in failed for node in each.nodes]
            owners = list(dict.fromkeys(plan.owner_of[node].name for node in nodes))
            what = (
                f"{name} could not compile {len(failed)} parts of {_calls(len(nodes))}, which it took; the first "
                f"was {part.name}."
            )
            error = KeelError(error.code, what, error.reasons, error.where, _instead(owners))
        warnings.warn(str(error), KeelWarning, stacklevel=4)


def _linkable(
    graph: PartGraph, run: Callable[..., Sequence[Any]], promised: PartContract, lost: Sequence[tuple[Part, KeelError]]
) -> CompiledPart:
    """The compiled part, with its checks, and the errors of those who could not compile some of its calls."""
    looked = run.first if isinstance(run, CastResults) else run
    first = None if is_checking_every_call() else check_first_call(looked, promised)
    trouble = tuple(error for part, error in lost if not set(part.nodes).isdisjoint(graph.part.nodes))
    return CompiledPart(
        graph.part.name,
        run if first else check_every_call(looked, promised),
        graph.inputs,
        graph.outputs,
        first,
        graph.part.owner.name,
        trouble,
    )


def _key(graph: PartGraph) -> Any:
    """What tells parts apart that are not compiled alike."""
    return graph.part.owner.name, graph.part.nodes, graph.outputs


def _compiled(graph: PartGraph, ctx: CompileContext, found: CompileResult | None) -> Run:
    """The compiled part, or what became of it already.  Raises what the backend raises."""
    if found is not None and found.raised is not None:
        raise found.raised
    run = with_context(graph.part.owner.compile, ctx)(graph.gm) if found is None else found.run
    if isinstance(run, Coroutine):
        run.close()  # or else Python warns that nobody awaits it
    if not callable(run):
        raise TypeError(f"`compile` returned {type(run).__name__}, not a callable.")
    return cast(Run, run)


def _without(plan: Plan, parts: Sequence[Part], errors: Sequence[KeelError]) -> Refusals:
    """The refusals of a plan, and one for each call of the parts that could not be compiled."""
    refusals = dict(plan.refusals)
    for part, error in zip(parts, errors, strict=True):
        why = Refusal(f"{part.owner.name} could not compile it: {(error.reasons or {})[part.owner.name]}")
        refusals |= {node: {**refusals.get(node, {}), part.owner.name: why} for node in part.nodes}
    return refusals


def _calls(number: int) -> str:
    return f"{number} call{'s' if number != 1 else ''}"


def _failed(nodes: Sequence[fx.Node], part: Part, raised: BaseException) -> KeelError:
    """The error of a part, of ``nodes``, for which its backend raised that."""
    name, calls = part.owner.name, _calls(len(nodes))
    return KeelError(
        "compile-raised",
        f"{name} could not compile part {part.name} of {calls}, which it took.",
        {part.owner.name: first_line(raised)},
        next((at for n in nodes if (at := source_line(n))), None),
        "This is a defect of the backend, for it claimed these calls. Leave it out, or add one that takes them.",
    )
