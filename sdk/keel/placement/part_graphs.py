"""Each part of a plan as a graph of its own.

The placeholders of a part graph are the tensors and sizes that it needs from outside. Its output is the tuple of the
values that others need from it. Arithmetic on sizes is repeated in every part that needs it, so a backend never waits
for a number.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from keel.placement.call_graph import is_getitem, is_size_arithmetic
from keel.placement.placement import Part, Plan
from keel.symbols import free_symbols, implied_symbols
from keel.torch_adapter import expression, lazy_module
from keel.types import leaves

MANY = 10_000
"""A graph with this many nodes is large."""


@dataclass(frozen=True, eq=False)
class PartGraph:
    """A part, its graph, and the names (of nodes of the whole graph) of its placeholders and of its outputs, in order.

    Unpacks as ``part, gm, inputs, outputs``.
    """

    part: Part
    graph: fx.Graph
    bodies: Mapping[str, torch.nn.Module]  # of higher-order operators, by attribute
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def gm(self) -> fx.GraphModule:
        """The graph as a module. It is made on first use, and its Python when it first runs, because FX takes longer to
        write and compile Python than all other work of splitting a graph.
        """
        return lazy_module(self.bodies, self.graph, self.part.name)

    def __iter__(self) -> Iterator[object]:
        return iter((self.part, self.gm, self.inputs, self.outputs))


def build_part_graphs(gm: fx.GraphModule, plan: Plan) -> list[PartGraph]:
    """Returns the parts of ``gm`` in launch order.

    Nodes keep their names and ``meta`` (so fake values are shared, not copied).  Sizes that the graph itself returns
    are left to the caller: every tensor and size they come from is an input of the graph or an output of some part.
    """
    part_of = _part_of(gm.graph, plan)
    members, inputs = _members(gm, part_of, len(plan.parts))
    if numbers := _numbers(gm.graph):
        for nodes, part_inputs in zip(members, inputs, strict=True):
            part_inputs |= _unknown_sizes(numbers, nodes, part_inputs)
    crossing = _crossing(gm.graph, inputs)
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    made = []
    with _no_collection(large=len(order) > MANY):
        for i, part in enumerate(plan.parts):
            own, needed = (sorted(nodes, key=order.__getitem__) for nodes in (members[i], inputs[i]))
            made.append(_build(gm, part, own, needed, [n for n in own if n in crossing and n in part_of]))
    return made


@contextmanager
def _no_collection(*, large: bool) -> Iterator[None]:
    """Pauses the garbage collector: Python looks for cycles repeatedly while millions of objects are made, and all are
    kept.

    Freezing and thawing moves the objects to the oldest generation, so that they are not scanned right afterwards. Only
    large graphs are worth it, since Python counts already frozen objects one by one.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if large and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def sources(node: fx.Node) -> set[fx.Node]:
    """Returns the nodes that a value needs if arithmetic on sizes is repeated: ``node`` itself, or the sources of its
    sizes.
    """
    if not is_size_arithmetic(node):
        return {node}
    producers: set[fx.Node] = set()
    visited, todo = {node}, [node]
    while todo:
        for a in todo.pop().all_input_nodes:
            if not is_size_arithmetic(a):
                producers.add(a)
            elif a not in visited:
                visited.add(a)
                todo.append(a)
    return producers


def _part_of(graph: fx.Graph, plan: Plan) -> dict[fx.Node, int]:
    """The part of each call and of the picks of its results."""
    number = {name: i for i, part in enumerate(plan.parts) for name in part.nodes}
    part_of: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.name in number:
            part_of[node] = number[node.name]
        elif is_getitem(node) and node.all_input_nodes[0] in part_of:
            part_of[node] = part_of[node.all_input_nodes[0]]
    return part_of


def _members(
    gm: fx.GraphModule, part_of: Mapping[fx.Node, int], count: int
) -> tuple[list[set[fx.Node]], list[set[fx.Node]]]:
    """Per part: the nodes of its graph (its own, and the arithmetic it repeats), and those that become placeholders."""
    members: list[set[fx.Node]] = [set() for _ in range(count)]
    inputs: list[set[fx.Node]] = [set() for _ in range(count)]
    for node, i in part_of.items():
        members[i].add(node)
        todo = list(node.all_input_nodes)
        while todo:
            a = todo.pop()
            if part_of.get(a) == i or a in members[i] or a in inputs[i]:
                continue
            if is_size_arithmetic(a) or _is_graph(a, gm):
                members[i].add(a)
                todo.extend(a.all_input_nodes)
            else:
                inputs[i].add(a)
    return members, inputs


def _numbers(graph: fx.Graph) -> dict[str, fx.Node]:
    """The inputs of the graph that are the value of a symbol each, by its name."""
    values = ((n, n.meta.get("val")) for n in graph.find_nodes(op="placeholder"))
    return {str(expression(v)): n for n, v in values if isinstance(v, torch.SymInt)}


def _unknown_sizes(numbers: Mapping[str, fx.Node], own: Iterable[fx.Node], inputs: Iterable[fx.Node]) -> set[fx.Node]:
    """Returns the symbols of ``numbers`` that sizes of a part contain but no input determines: an input may have ``n //
    2`` rows, and none ``n``.
    """
    input_sizes = [dim for n in inputs for dim in _sizes(n)]
    held = {name for dim in (*input_sizes, *(d for n in own for d in _sizes(n))) for name in free_symbols(dim)}
    if not held - {str(dim) for dim in input_sizes}:  # the common case: each symbol is a size by itself
        return set()
    return {numbers[name] for name in held - implied_symbols(input_sizes) if name in numbers}


def _sizes(node: fx.Node) -> Iterator[Any]:
    """Returns the symbolic sizes of a value, or the value itself if it is a symbolic number."""
    for value in leaves(node.meta.get("val")):
        for n in value.shape if isinstance(value, torch.Tensor) else [value]:
            if isinstance(n, torch.SymInt):
                yield expression(n)


def _crossing(graph: fx.Graph, inputs: Iterable[set[fx.Node]]) -> set[fx.Node]:
    """The nodes whose values some part, or the caller, needs from outside."""
    crossing = set[fx.Node]().union(*inputs)
    for result in graph.output_node().all_input_nodes:
        crossing |= sources(result)
    return crossing


def _build(
    gm: fx.GraphModule, part: Part, members: list[fx.Node], inputs: list[fx.Node], outputs: list[fx.Node]
) -> PartGraph:
    # Setting an attribute of a node updates FX's tables, and creating a node with arguments walks them once more than
    # setting them does. That is half of the time of `node_copy`.
    graph, copies, bodies = fx.Graph(), dict[fx.Node, fx.Node](), dict[str, torch.nn.Module]()
    for node in inputs:
        copies[node] = graph.create_node("placeholder", node.name, name=node.name)
        copies[node].meta.update(node.meta)
    for node in members:
        if node.op == "get_attr":
            bodies[str(node.target)] = copied_body(gm.get_submodule(str(node.target)))
        copies[node] = copy = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
        copy.args = fx.map_arg(node.args, copies.__getitem__)
        if node.kwargs:
            copy.kwargs = fx.map_arg(node.kwargs, copies.__getitem__)
        copy.meta.update(node.meta)
    graph.output(tuple(copies[node] for node in outputs))
    return PartGraph(part, graph, bodies, tuple(n.name for n in inputs), tuple(n.name for n in outputs))


def copied_body(body: torch.nn.Module) -> torch.nn.Module:
    """Copies a body and the bodies inside it, since the backend that compiles the part may change them."""
    if not isinstance(body, fx.GraphModule):
        return body
    copy = lazy_module(body, deepcopy(body.graph), type(body).__name__)
    for name, inner in body.named_children():
        if isinstance(inner, fx.GraphModule) and hasattr(copy, name):
            setattr(copy, name, copied_body(inner))
    return copy


def _is_graph(node: fx.Node, gm: fx.GraphModule) -> bool:
    """Whether the node is the body of a higher-order operator, which travels with its call."""
    return node.op == "get_attr" and isinstance(getattr(gm, str(node.target), None), fx.GraphModule)
