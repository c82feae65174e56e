"""Frozen graphs: parameters and buffers become constants, and what is computed from constants alone is computed once.

The user promises with ``freeze=True`` that the model's tensors do not change any more. A graph of training is not
frozen, because an optimizer writes to its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from keel.torch_adapter import (
    Boxed,
    Captured,
    has_effect,
    is_overload,
    is_random,
    makes_sizes,
    may_alias,
    real_tensors,
    without_autocast,
    without_modes,
)


def frozen(captured: Captured) -> tuple[Captured, Callable[[Boxed], Boxed]]:
    """The graph with the model's tensors as constants, as far as the graph does not write to them, and with constants
    folded; and a function that wraps what it is compiled to as a function of the inputs of the given graph.
    """
    inputs = [n for n in captured.gm.graph.find_nodes(op="placeholder") if n.name not in captured.constants]
    values = {
        name: value
        for name, each in captured.stored.items()
        if not each.written and name not in captured.constants and (value := each.value()) is not None
    }
    left = [i for i, node in enumerate(inputs) if node.name not in values]
    number = {old: new for new, old in enumerate(left)}
    _move_to_end(captured.gm.graph, [node for node in inputs if node.name in values])
    result = replace(
        captured,
        constants={**captured.constants, **values},
        static=tuple(number[i] for i in captured.static if i in number),
        overwrites=tuple((result, number[i]) for result, i in captured.overwrites),
        frozen=True,
    )

    def with_all_inputs(run: Boxed) -> Boxed:
        def call(args: list[Any]) -> Sequence[Any]:
            own = [args[i] for i in left]
            args.clear()
            return run(own)

        return call

    return fold_constants(result), with_all_inputs


def _move_to_end(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Moves placeholders behind all others."""
    end = next(node for node in graph.nodes if node.op != "placeholder")
    for node in nodes:
        end.prepend(node)


def fold_constants(captured: Captured) -> Captured:
    """Computes what depends on constants alone, in eager PyTorch, unless the result takes more memory than the
    constants that it is computed from. Views are not worth it, but calls that read them are. What the graph returns is
    not folded: each call returns a new tensor. A buffer that the program writes to is not a constant.
    """
    graph = captured.gm.graph
    written = {name for name, each in captured.stored.items() if each.written}
    known: dict[fx.Node, Any] = {n: captured.constants[n.name] for n in graph.nodes if n.name in captured.constants}
    known = {node: value for node, value in known.items() if node.name not in written}
    with real_tensors(), without_modes(), without_autocast(), torch.no_grad():
        for node in graph.nodes:
            if _is_computed_from(node, known) and (value := _evaluated(node, known)) is not None:
                known[node] = value
    calls = [node for node in known if node.op == "call_function"]
    folded = {_fold(graph, node): known[node] for node in _read_by_others(calls, known)}
    for node in reversed(calls):
        if not node.users:
            graph.erase_node(node)
    captured.gm.recompile()
    return replace(captured, constants={**captured.constants, **folded})


def _read_by_others(calls: Sequence[fx.Node], known: Mapping[fx.Node, Any]) -> list[fx.Node]:
    """Returns those of the known calls, views left out, that a call reads which is not known, itself or as a view, and
    that the graph does not return.
    """
    read, returned = set[fx.Node](), set[fx.Node]()
    for node in reversed(calls):
        views = [user for user in node.users if user in known and may_alias(user.target)]
        if any(user not in known for user in node.users) or not read.isdisjoint(views):
            read.add(node)
        if any(user.op == "output" for user in node.users) or not returned.isdisjoint(views):
            returned.add(node)
    return [node for node in calls if node in read - returned and not may_alias(node.target)]


def _is_computed_from(node: fx.Node, known: Mapping[fx.Node, Any]) -> bool:
    """True if a call has the same result whenever its operands are the ``known`` values."""
    if node.op != "call_function" or not is_overload(node.target) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    if is_random(node.target) or has_effect(node.target) or makes_sizes(node.target):
        return False
    return bool(node.all_input_nodes) and all(n in known for n in node.all_input_nodes)


def _evaluated(node: fx.Node, known: Mapping[fx.Node, Any]) -> torch.Tensor | None:
    """The value of a call; None if it is larger than its operands, or not of the type that was captured."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    like = node.meta["val"]
    most = sum(_bytes(known[n]) for n in node.all_input_nodes)
    if not may_alias(node.target) and _bytes(like) > most:
        return None
    value = node.target(*args, **kwargs)  # type: ignore[operator]
    same = value.dtype == like.dtype and value.shape == like.shape and value.stride() == like.stride()
    return value if same and value.device == like.device else None


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _fold(graph: fx.Graph, node: fx.Node) -> str:
    """Replaces a call by a placeholder with its value; returns the name of the placeholder."""
    last = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_after(last):
        constant = graph.placeholder(f"folded_{node.name}")
    constant.meta = {"val": node.meta["val"]}
    node.replace_all_uses_with(constant)
    return str(constant.name)
