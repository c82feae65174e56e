"""A graph as index arrays: one unit per call, and which units each needs.

Nodes without work have no unit: inputs, constants, ``getitem`` on a call with several results, and arithmetic on sizes
(which is repeated wherever it is needed). Dependencies run through them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import fx

from keel.graph.assertion_calls import asserts
from keel.graph.calls import call_of
from keel.plugin import Fusion
from keel.torch_adapter import has_effect
from keel.types import Call


@dataclass(frozen=True)
class CallGraph:
    """``nodes`` make the calls, in graph order; ``needs[i]`` are the sorted numbers of the units that unit i waits
    for: by its arguments, because their effects come first, or because they are assertions that stand before it.
    ``fusions`` are what backends claim of the graph, by the name of the backend.
    """

    nodes: tuple[fx.Node, ...]
    calls: tuple[Call, ...]
    needs: tuple[tuple[int, ...], ...]
    numbers: Mapping[fx.Node, int]
    fusions: Mapping[str, tuple[Fusion, ...]] = field(default_factory=dict)

    def numbers_of(self, names: Iterable[str]) -> list[int]:
        """The units of calls, by the names of their nodes, in graph order."""
        return sorted(self._by_name[name] for name in names)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return {node.name: i for i, node in enumerate(self.nodes)}

    def maker(self, unit: int) -> int | None:
        """Returns the unit that makes the first operand, or None if the call has no operand or the operand is a graph
        input.
        """
        operand = next(iter(self.nodes[unit].all_input_nodes), None)
        while operand is not None and is_getitem(operand):
            operand = operand.all_input_nodes[0]
        return self.numbers.get(operand) if operand else None

    def readers(self) -> list[list[int]]:
        """For each unit, those that wait for it."""
        results: list[list[int]] = [[] for _ in self.needs]
        for unit, needed in enumerate(self.needs):
            for u in needed:
                results[u].append(unit)
        return results


def call_graph_of(graph: fx.Graph) -> CallGraph:
    """The units of the graph, in time and memory linear in its nodes and edges."""
    nodes: list[fx.Node] = []
    calls: list[Call] = []
    needs: list[tuple[int, ...]] = []
    sources: dict[fx.Node, tuple[int, ...]] = {}
    effect: tuple[int, ...] = ()  # the last unit whose order shows
    assertion: tuple[int, ...] = ()  # the last that all behind it wait for
    for node in graph.nodes:
        needed = _union(sources[a] for a in node.all_input_nodes)
        if (call := call_of(node)) is None:
            sources[node] = needed
            continue
        sources[node], needed = (len(nodes),), _union((needed, assertion))
        if has_effect(call.op):
            needed, effect = _union((needed, effect)), (len(nodes),)
        if asserts(node):
            assertion = (len(nodes),)
        nodes.append(node)
        calls.append(call)
        needs.append(needed)
    return CallGraph(tuple(nodes), tuple(calls), tuple(needs), {node: i for i, node in enumerate(nodes)})


def is_getitem(node: fx.Node) -> bool:
    """Whether the node takes one result of a call that has several."""
    return node.op == "call_function" and node.target is operator.getitem


def is_size_arithmetic(node: fx.Node) -> bool:
    """Whether the node computes a size from sizes (or reads one off a tensor): no work for a backend."""
    return node.op == "call_function" and not is_getitem(node) and call_of(node) is None


def _union(sets: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({i for s in sets for i in s}))
