"""Which calls of a graph are assertions: what stands behind one waits for it."""

from __future__ import annotations

from torch import fx

from keel.torch_adapter import is_assertion, is_operator, is_overload


def asserts(node: fx.Node) -> bool:
    """Whether a call stops the program where a condition does not hold, by itself or in a graph that it is given."""
    if node.op != "call_function" or not is_operator(node.target):
        return False
    if is_overload(node.target):
        return is_assertion(node.target)
    return any(asserts(inner) for body in _bodies(node) for inner in body.graph.nodes)


def _bodies(node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that an operator of higher order is given."""
    module = node.graph.owning_module
    given = (getattr(module, str(a.target), None) for a in node.all_input_nodes if a.op == "get_attr")
    return [body for body in given if isinstance(body, fx.GraphModule)]
