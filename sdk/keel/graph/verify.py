"""Verifies a captured or legalized graph: pure operator calls on typed values, and arithmetic on sizes."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import is_call, source_line
from keel.spec import OPSET
from keel.torch_adapter import expression, is_operator, late, writes
from keel.types import leaves


def verify(gm: fx.GraphModule, stage: str) -> None:
    """Raises KeelError[bad-graph] with a sentence for each invalid node after ``stage``: nodes that no graph may have,
    and nodes whose types promise a data-dependent size.
    """
    problems = dict(violations(gm)) | {n.name: why for n in gm.graph.nodes if (why := _promised(n)) is not None}
    if problems:
        first = next(n for n in gm.graph.nodes if n.name in problems)
        raise KeelError(
            "bad-graph",
            f"The graph is not well-formed after {stage}.",
            problems,
            source_line(first),
            "This is a defect of Keel, or of an operator without a correct functional form.",
        )


def violations(gm: fx.GraphModule) -> Iterator[tuple[str, str]]:
    """Maps the name of each invalid node to the reason."""
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


def _promised(node: fx.Node) -> str | None:
    """What is wrong with a call whose result has a data-dependent size. Its type must not promise a known size, because
    a call that relies on that must take the result of an assertion.
    """
    if node.op != "call_function" or not _sized_by_data(node):
        return None
    operand, value = node.args[0], node.meta.get("val")
    argument = operand.meta.get("val") if isinstance(operand, fx.Node) else None
    if not isinstance(argument, torch.Tensor) or not isinstance(value, torch.Tensor) or _is_empty(argument):
        return None
    if any(late(expression(n)) for n in value.shape):
        return None
    return f"Its type promises the shape {list(value.shape)}, which depends on data, and no assertion tests it."


def _sized_by_data(node: fx.Node) -> bool:
    """True if a call selects a data-dependent number of elements."""
    member = OPSET.get(node.target)  # type: ignore[arg-type]
    if member is None or member.sized_by != "masks":
        return member is not None and member.sized_by == "data"
    masks = [a.meta["val"] for a in leaves(node.args[1]) if isinstance(a, fx.Node)]
    return any(m.dtype in (torch.bool, torch.uint8) and not _is_empty(m) for m in masks)


def _is_empty(x: torch.Tensor) -> bool:
    """True if a tensor is known to be empty. Asking PyTorch would add a guard on data-dependent sizes."""
    return any(expression(n) == 0 for n in x.shape)


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
