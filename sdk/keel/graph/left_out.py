"""Refuses graphs that hold what the operator set leaves out: layouts and dtypes that have no type."""
from __future__ import annotations

from torch import fx

from keel.errors import KeelError
from keel.graph.calls import where
from keel.spec.excluded import Exclusion, exclusion_of, exclusion_of_call, exclusion_of_value, left_out
from keel.torch_adapter import given_to, is_operator
from keel.types import Call


def refuse_left_out(gm: fx.GraphModule) -> None:
    """Raises KeelError[out-of-opset] for the first node whose value has no type by decision, with the user's line."""
    for node in gm.graph.nodes:
        if (found := _found(node)) is not None:
            raise _error(node, *found)


def refuse_inputs(gm: fx.GraphModule) -> None:
    """The same for the tensors that Dynamo compiles a graph for, whose layouts their fake tensors need not tell."""
    for node, tensor in given_to(gm):
        if (found := exclusion_of_value(tensor)) is not None:
            raise _error(node, *found)


def _found(node: fx.Node) -> tuple[Exclusion, str] | None:
    if is_operator(node.target):
        return exclusion_of_call(node.target, node.meta.get("val"))  # type: ignore[arg-type]
    return exclusion_of_value(node.meta.get("val"))


def _error(node: fx.Node, excluded: Exclusion, named: str) -> KeelError:
    what = f"%{node.name}" if node.op == "call_function" else f"The input %{node.name}"
    lines = (line for n in (node, *node.users) if (line := where(n)) is not None)
    return left_out(excluded, named, what, next(lines, None))


def why_undone(call: Call) -> str:
    """Why a call has no decomposition, as far as anybody has decided."""
    excluded = exclusion_of(call.name)
    if excluded is None:
        return "There is no decomposition of it."
    return f"It is left out of the opset ({excluded.name}): {excluded.reason} {excluded.do}"
