"""Views among the results of a part, for backends that compute values and not views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import getitem
from typing import Any

from torch import fx

from keel.placement.call_graph import is_size_arithmetic
from keel.placement.part_graphs import PartGraph
from keel.runtime.contract_checks import Run
from keel.torch_adapter import lazy_module, may_alias


@dataclass(frozen=True, eq=False)
class ResultViews:
    """Makes the results of a part. ``graph`` gets the part's inputs at the positions ``inputs``, and then the tensors
    that were computed.
    """

    graph: fx.GraphModule
    inputs: tuple[int, ...]

    def of(self, values: Run) -> Run:
        """The part, of the function ``values`` that computes tensors."""

        def viewed(*args: Any) -> Sequence[Any]:
            results: Sequence[Any] = self.graph(*[args[i] for i in self.inputs], *values(*args))
            return results

        return viewed


@dataclass(frozen=True, eq=False)
class ViewedPart:
    """A part in two graphs: ``values`` computes tensors, and ``views`` makes the part's results of them."""

    values: PartGraph
    views: ResultViews

    @property
    def is_all(self) -> bool:
        """True if the part computes nothing but views."""
        return all(node.op != "call_function" for node in self.values.graph.nodes)


def separate_views(part: PartGraph) -> ViewedPart | None:
    """Separates the calls that make results views of inputs or of computed tensors. PyTorch runs them after each call,
    so that results share memory as the graph promises, and are not copied. None if no result is a view.
    """
    results = list(part.graph.output_node().args[0])  # type: ignore[arg-type]
    if not any(_viewed(node) for node in results):
        return None
    moved, read = _closure(results)
    inputs = [node for node in part.graph.find_nodes(op="placeholder") if node in read]
    computed = [node for node in part.graph.nodes if node in read and node.op != "placeholder"]
    views = _views(part, moved, [*inputs, *computed], results)
    return ViewedPart(
        _computing(part, computed), ResultViews(views, tuple(part.inputs.index(node.name) for node in inputs))
    )


def _viewed(node: Any) -> fx.Node | None:
    """The tensor that a value is a view of, if its operator makes views."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return None
    if node.target is getitem:
        (call,) = node.all_input_nodes
        return call if _viewed(call) is not None and isinstance(call.meta["val"], list | tuple) else None
    positions = may_alias(node.target).get(0, ())
    viewed = node.args[positions[0]] if positions and positions[0] < len(node.args) else None
    return viewed if isinstance(viewed, fx.Node) else None


def _closure(results: Sequence[Any]) -> tuple[set[fx.Node], set[fx.Node]]:
    """The calls that make views of ``results``, and sizes for these; and the other values that they or the caller
    read.
    """
    moved, read, todo = set[fx.Node](), set[fx.Node](), [r for r in results if isinstance(r, fx.Node)]
    while todo:
        node = todo.pop()
        if _viewed(node) is None and not is_size_arithmetic(node):
            read.add(node)
        elif node not in moved:
            moved.add(node)
            todo += node.all_input_nodes
    return moved, read


def _computing(part: PartGraph, results: Sequence[fx.Node]) -> PartGraph:
    """The part with these results. Calls that only other results need are left out."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    needed, todo = set[fx.Node](), [*results, *(n for n in part.graph.nodes if n.op == "call_function" and not n.users)]
    while todo:
        if (node := todo.pop()) not in needed:
            needed.add(node)
            todo += node.all_input_nodes
    for node in part.graph.nodes:
        if node.op == "placeholder" or node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in results))
    return replace(part, graph=graph, outputs=tuple(node.name for node in results))


def _views(part: PartGraph, moved: set[fx.Node], read: Sequence[fx.Node], results: Sequence[Any]) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in read:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    for node in part.graph.nodes:
        if node in moved:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(fx.map_arg(tuple(results), copies.__getitem__))
    return lazy_module({}, graph, f"{part.part.name}_views")
