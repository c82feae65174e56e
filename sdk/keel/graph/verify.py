"""What a captured or negotiated graph may contain: pure operator calls on typed values, and arithmetic on sizes."""
from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import is_call, where
from keel.torch_adapter import is_operator, writes


def verify(gm: fx.GraphModule, stage: str) -> None:
    """Raises KeelError[bad-graph] with a sentence for each node that a graph may not have after ``stage``."""
    problems = dict(wrong(gm))
    if problems:
        first = next(n for n in gm.graph.nodes if n.name in problems)
        raise KeelError("bad-graph", f"The graph is not well-formed after {stage}.", problems, where(first),
                        "This is a defect of Keel, or of an operator without a correct functional form.")


def wrong(gm: fx.GraphModule) -> Iterator[tuple[str, str]]:
    """The name of each node that is not allowed, and why."""
    for node in gm.graph.nodes:
        if (why := _wrong(gm, node)) is not None:
            yield node.name, why


def _wrong(gm: fx.GraphModule, node: fx.Node) -> str | None:
    match node.op:
        case "output":
            return None if isinstance(node.args[0], tuple | list) else "The output is not a tuple."
        case "placeholder":
            return None if "val" in node.meta else "The input has no type."
        case "get_attr":
            is_graph = isinstance(getattr(gm, str(node.target), None), fx.GraphModule)
            return None if is_graph else f"{node.target} is an attribute and not an input."
        case "call_function":
            return _wrong_call(node)
    return f"{node.op} is not a call of an operator."


def _wrong_call(node: fx.Node) -> str | None:
    if "val" not in node.meta:
        return f"{node.target} has no type."
    if is_operator(node.target):
        return f"{node.target} writes to its arguments." if is_call(node) and writes(node.target) else None  # type: ignore[arg-type]
    if node.target is operator.getitem or isinstance(node.meta["val"], _NUMBERS):
        return None
    return f"{getattr(node.target, '__name__', node.target)} is not an operator of torch.ops."


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
