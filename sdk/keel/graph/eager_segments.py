"""Splits a graph at calls that run in eager PyTorch: calls on streams and events, and calls on tensors without a type.

Calls before such a call run before it, and calls behind it run after it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from keel.torch_adapter import Boxed, Captured, works_on_streams


@dataclass(frozen=True)
class Step:
    """Nodes that run together: either a single ``call`` that PyTorch runs, or a graph to compile. ``inputs`` and
    ``outputs`` are the names of the values that it takes and returns.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: Captured | None = None
    call: fx.Node | None = None


def segments(captured: Captured, eager: Collection[fx.Node] = ()) -> list[Step]:
    """The steps of a graph, in order. Empty if no call is in ``eager`` or works on streams or events."""
    alone = {n for n in captured.gm.graph.nodes if n in eager or works_on_streams(n)}
    if not alone:
        return []
    for node in captured.gm.graph.find_nodes(op="call_function", target=operator.getitem):
        if node.args[0] in alone:
            alone.add(node)
    groups = [g for g in _groups(captured.gm, alone) if g]
    steps = []
    for group in groups:
        inputs = dict.fromkeys(
            n for node in group for n in node.all_input_nodes if n not in group and n.op != "get_attr"
        )
        outputs = tuple(n for n in group if any(u not in group for u in n.users))
        names = tuple(n.name for n in inputs), tuple(n.name for n in outputs)
        if group[0] in alone:
            steps.append(Step(*names, call=group[0]))
        else:
            part = _graph(captured, group, list(inputs), outputs)
            part_inputs = tuple(n.name for n in inputs if n.name not in part.constants)
            steps.append(Step(part_inputs, names[1], captured=part))
    return steps


def in_order(captured: Captured, steps: Sequence[Step], compile: Callable[[Captured], Boxed]) -> Boxed:
    """A callable that runs the steps one after the other. ``compile`` compiles their graphs."""
    inputs = [n.name for n in captured.gm.graph.find_nodes(op="placeholder") if n.name not in captured.constants]
    results: Any = captured.gm.graph.output_node().args[0]
    values_of = {n.name: n.meta.get("val") for n in captured.gm.graph.nodes}
    runs = [
        _call(step, captured.gm)
        if step.captured is None
        else _gathered(compile(step.captured), [values_of[name] for name in step.outputs])
        for step in steps
    ]
    returned = {r.name for r in results if isinstance(r, fx.Node)}
    last = {name: i for i, step in enumerate(steps) for name in (*step.inputs, *step.outputs)}

    def run(args: list[Any]) -> list[Any]:
        values = {**captured.constants, **dict(zip(inputs, args, strict=True))}
        args.clear()
        for i, (step, do) in enumerate(zip(steps, runs, strict=True)):
            arguments = [values[name] for name in step.inputs]
            for name in step.inputs:
                if last[name] == i and name not in returned:
                    values.pop(name, None)
            values.update(zip(step.outputs, do(arguments), strict=True))
            del arguments
        return [values[r.name] if isinstance(r, fx.Node) else r for r in results]

    return run


def _groups(gm: fx.GraphModule, alone: Collection[fx.Node]) -> Iterator[list[fx.Node]]:
    """Groups of nodes that run together, in order. A ``getitem`` stays with the call whose result it picks."""
    group: list[fx.Node] = []
    made: dict[fx.Node, list[fx.Node]] = {}
    pending: list[list[fx.Node]] = [group]
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if node in alone:
            group = []
            pending += [[node], group]
        elif isinstance(source, fx.Node) and source in made:
            made[node] = made[source]
            made[node].append(node)
        else:
            group.append(node)
            made[node] = group
    yield from pending


def _graph(
    captured: Captured, group: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]
) -> Captured:
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    constants = {n.name: captured.constants[n.name] for n in inputs if n.name in captured.constants}
    for n in sorted(inputs, key=lambda n: n.name in constants):
        made[n] = graph.placeholder(n.name)
        made[n].meta = dict(n.meta)
    for node in group:
        for n in node.all_input_nodes:
            if n not in made:
                made[n] = graph.node_copy(n)  # the graph of a higher-order operator
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(r for n in outputs for r in _parts(graph, made[n])))
    gm = fx.GraphModule(captured.gm, graph)
    nothing = frozenset[str]()
    return replace(captured, gm=gm, constants=constants, static=(), overwrites=(), donated=nothing, seconds=0.0)


def _parts(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    """Returns the tensors that a node returns, because the results of a graph cannot be tuples."""
    values = node.meta["val"]
    if not isinstance(values, tuple | list):
        return [node]
    tensors = [graph.call_function(operator.getitem, (node, i)) for i in range(len(values))]
    for part, value in zip(tensors, values, strict=True):
        part.meta["val"] = value
    return tensors


def _gathered(run: Boxed, outputs: Sequence[Any]) -> Boxed:
    """Wraps ``run``, whose results are flat, to return the tuples among ``outputs``."""
    if not any(isinstance(value, tuple | list) for value in outputs):
        return run

    def gathered(args: list[Any]) -> list[Any]:
        results = iter(run(args))
        return [
            [next(results) for _ in value] if isinstance(value, tuple | list) else next(results) for value in outputs
        ]

    return gathered


def _call(step: Step, gm: fx.GraphModule) -> Boxed:
    node = step.call
    assert node is not None and callable(node.target)
    target: Callable[..., Any] = node.target

    def run(args: list[Any]) -> list[Any]:
        values: Mapping[str, Any] = dict(zip(step.inputs, args, strict=True))
        arguments = fx.node.map_arg(
            (node.args, node.kwargs), lambda n: getattr(gm, str(n.target)) if n.op == "get_attr" else values[n.name]
        )
        result = target(*arguments[0], **arguments[1])
        return [result] if step.outputs else []

    return run
