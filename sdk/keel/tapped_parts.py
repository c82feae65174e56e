"""Parts that are compiled again with more outputs, so that values inside them can be judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from keel.error_budgets import Expected, JudgedResult, NodeRuns, judge_values
from keel.error_budgets.judgment import judge_several
from keel.graph.calls import alias_bases, is_call
from keel.graph.module_paths import module_path
from keel.placement.part_graphs import PartGraph
from keel.plugin import Backend, CompileContext
from keel.runtime.compile_parts import compiled_part

MOST = 400
"""The most values inside a part that are asked for at once."""


@dataclass(frozen=True)
class Suspect:
    """The first call of a part whose result is over its budget. ``is_fused`` says that this shows only where the calls
    before it are not asked for their results, so that the fault may be in how they are fused.
    """

    result: JudgedResult
    is_fused: bool


def taps_at_modules(graph: fx.Graph) -> tuple[str, ...]:
    """The last value that each module makes, by the names of the nodes."""
    last: dict[str, fx.Node] = {}
    for node in tappable(graph):
        last[module_path(node)] = node
    return tuple(node.name for node in last.values())[:MOST]


def tappable(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that can be outputs in addition: tensors in memory of their own that no fusion hides."""
    bases = alias_bases(graph)
    nodes = [n for n in graph.nodes if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor)]
    return [n for n in nodes if bases[n] == {n} and (is_call(n) or is_call(n.all_input_nodes[0]))]


def tapped(
    graph: PartGraph, ctx: CompileContext, taps: Collection[str], owner: Backend | None = None
) -> Callable[..., dict[str, Any]]:
    """The part with the values of the nodes ``taps`` as results, compiled by its owner or another backend. Returns a
    function from its inputs to these values, by name. Passes on what the backend raises.
    """
    copy = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    copy.graph_copy(graph.graph, copies)
    nodes = [n for n in graph.graph.nodes if n.name in taps]
    copy.output(tuple(copies[n] for n in nodes))
    names = tuple(n.name for n in nodes)
    part = graph.part if owner is None else replace(graph.part, owner=owner)
    again = PartGraph(replace(part, fusions=()), copy, graph.bodies, graph.inputs, names)
    run = compiled_part(again, replace(ctx, dump=None, fusions=(), overwrites={}), None, ())
    return lambda *inputs: dict(zip(names, run(*inputs), strict=True))


def first_wrong_call(graph: PartGraph, ctx: CompileContext, inputs: Sequence[Any], wrong: str) -> Suspect | None:
    """The first call of a part whose result is over its budget, judged by the results of the calls before it. If there
    is no such call, the fault needs calls that are fused: then the values before the node ``wrong`` are asked for one
    at a time, by bisection. None if the part is not wrong on these inputs.
    """
    arithmetic = graph.part.owner.arithmetic
    nodes = _before(graph.graph, wrong)[-MOST:]
    runs = NodeRuns(graph.gm, arithmetic)
    values = tapped(graph, ctx, [n.name for n in nodes])(*inputs)
    for result in judge_values(graph.gm, inputs, values, one_by_one=True, runs=runs):
        if result.judgment.is_over and not result.is_drawn:
            return Suspect(result, False)
    return _bisected(graph, ctx, inputs, nodes, runs)


def _before(graph: fx.Graph, wrong: str) -> list[fx.Node]:
    """The values that the node ``wrong`` depends on and itself, in order."""
    node = next(n for n in graph.nodes if n.name == wrong)
    needed, todo = {node}, [node]
    while todo:
        for a in todo.pop().all_input_nodes:
            if a not in needed:
                needed.add(a)
                todo.append(a)
    return [n for n in tappable(graph) if n in needed]


def _bisected(
    graph: PartGraph, ctx: CompileContext, inputs: Sequence[Any], nodes: Sequence[fx.Node], runs: NodeRuns
) -> Suspect | None:
    expected: Mapping[str, Expected] = {n.name: e for n, e in runs.run(inputs, {n.name for n in nodes})}

    def judged(node: fx.Node) -> JudgedResult:
        value = tapped(graph, ctx, [node.name])(*inputs)[node.name]
        return JudgedResult.of(node, judge_several(value, expected[node.name]))

    last = judged(nodes[-1])
    if not last.judgment.is_over:
        return None
    low, high = -1, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        result = judged(nodes[middle])
        if result.judgment.is_over:
            high, last = middle, result
        else:
            low = middle
    return Suspect(last, True)
