"""Finds the assertions of a graph. Calls behind an assertion wait for it."""

from __future__ import annotations

from torch import fx

from keel.torch_adapter import is_assertion, is_operator, is_overload


def asserts(node: fx.Node) -> bool:
    """True if a call raises unless a condition holds, by itself or in a graph that it takes."""
    if node.op != "call_function" or not is_operator(node.target):
        return False
    if is_overload(node.target):
        return is_assertion(node.target)
    return any(asserts(inner) for body in _bodies(node) for inner in body.graph.nodes)


def _bodies(node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that a higher-order operator takes."""
    module = node.graph.owning_module
    attributes = (getattr(module, str(a.target), None) for a in node.all_input_nodes if a.op == "get_attr")
    return [body for body in attributes if isinstance(body, fx.GraphModule)]
