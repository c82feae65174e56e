"""Finds the assertions of a graph.  Calls behind an assertion wait for it."""

from __future__ import annotations

from torch import fx

from keel.torch_adapter import is_assertion, is_operator, is_overload


def asserts(node: fx.Node) -> bool:
    """True if a call stops the program unless a condition holds, itself or in a graph that is its argument."""
    if node.op != "call_function" or not is_operator(node.target):
        return False
    if is_overload(node.target):
        return is_assertion(node.target)
    return any(asserts(inner) for body in _bodies(node) for inner in body.graph.nodes)


def _bodies(node: fx.Node) -> list[fx.GraphModule]:
    """Returns the graphs among the arguments of a higher-order operator."""
    module = node.graph.owning_module
    given = (getattr(module, str(a.target), None) for a in node.all_input_nodes if a.op == "get_attr")
    return [body for body in given if isinstance(body, fx.GraphModule)]
