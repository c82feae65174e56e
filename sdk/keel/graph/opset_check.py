"""Finds values that the operator set leaves out: tensors whose layout or dtype has no type."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import fx

from keel.errors import KeelError, KeelWarning
from keel.graph.calls import source_line
from keel.spec.excluded import Exclusion, exclusion_of, exclusion_of_call, exclusion_of_value, left_out
from keel.torch_adapter import given_to, is_operator
from keel.types import Call


def reject_excluded(gm: fx.GraphModule) -> None:
    """Raises KeelError[out-of-opset] for the first node whose value is excluded from the operator set, with the user's
    line.
    """
    for node in gm.graph.nodes:
        if (excluded := _excluded_value(node)) is not None:
            raise _error(node, *excluded)


def reject_excluded_inputs(gm: fx.GraphModule) -> None:
    """The same for real inputs of a graph whose fake tensors have another layout."""
    for node, tensor in given_to(gm):
        fake = node.meta.get("example_value")
        if (exclusion := exclusion_of_value(tensor)) is not None and exclusion_of_value(fake) is None:
            raise _error(node, *exclusion)


def untyped_calls(gm: fx.GraphModule) -> Mapping[fx.Node, KeelError]:
    """The calls that return or take excluded values, each with the reason. No backend can take them, but PyTorch can
    run them. PyTorch's fake tensors do not show that a tensor is quantized. So the results of quantized tensors count
    as quantized, up to an operator that is known to return others.
    """
    reasons: dict[fx.Node, KeelError] = {}
    hidden: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if node.op == "placeholder" or node.op == "output":
            continue
        excluded = _excluded_value(node)
        operand = next((n for n in node.all_input_nodes if n in hidden or exclusion_of_value(n.meta.get("val"))), None)
        if excluded is not None:
            reasons[node] = _error(node, *excluded)
        elif operand is not None:
            reasons[node] = reasons[operand] if operand in reasons else _error(operand, *_value(operand))
        else:
            continue
        if (excluded is not None or operand in hidden) and _hides(node):
            hidden.add(node)
    return reasons


def _value(node: fx.Node) -> tuple[Exclusion, str]:
    exclusion = exclusion_of_value(node.meta.get("val"))
    assert exclusion is not None
    return exclusion


_TELL = frozenset({"aten.dequantize", "aten.int_repr"})
"""Operators on quantized tensors whose results have the types of their fake tensors."""


def _hides(node: fx.Node) -> bool:
    """True if a call on a tensor without a type may return another such tensor although its fake tensor has a type."""
    if not is_operator(node.target):
        return True
    name = ".".join(str(node.target).split(".")[:2])
    return name not in _TELL and isinstance(node.meta.get("val"), torch.Tensor)


def warn_of_eager_calls(reasons: Mapping[fx.Node, KeelError]) -> None:
    """Warns once for a graph that some of its calls run in eager PyTorch, and why."""
    first = next(iter(reasons.values()))
    calls = "A call" if len(reasons) == 1 else f"{len(reasons)} calls"
    warnings.warn(
        f"{calls} of a compiled graph {'runs' if len(reasons) == 1 else 'run'} in eager PyTorch: {first}",
        KeelWarning,
        stacklevel=2,
    )


def _excluded_value(node: fx.Node) -> tuple[Exclusion, str] | None:
    if is_operator(node.target):
        return exclusion_of_call(node.target, node.meta.get("val"))  # type: ignore[arg-type]
    return exclusion_of_value(node.meta.get("val"))


def _error(node: fx.Node, excluded: Exclusion, named: str) -> KeelError:
    what = f"%{node.name}" if node.op == "call_function" else f"The input %{node.name}"
    lines = (line for n in (node, *node.users) if (line := source_line(n)) is not None)
    return left_out(excluded, named, what, next(lines, None))


def why_no_decomposition(call: Call) -> str:
    """Why a call has no decomposition: a sentence."""
    excluded = exclusion_of(call.name)
    if excluded is None:
        return "It has no decomposition."
    return f"It is left out of the opset ({excluded.name}): {excluded.reason} {excluded.do}"
