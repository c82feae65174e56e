"""A part's graph run node by node in eager PyTorch, with some of its operators done otherwise."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx

Change = Callable[..., Any]
"""What is done in place of an operator: called with the operator, then its arguments."""
Compile = Callable[[fx.GraphModule], Callable[..., Any]]
Do = Callable[[fx.Node, Sequence[Any], Mapping[str, Any]], Any]


def run(gm: fx.GraphModule, inputs: Sequence[Any], do: Do) -> Any:
    """The outputs of the graph; ``do`` does its calls."""
    arguments, values = iter(inputs), dict[fx.Node, Any]()
    for node in gm.graph.nodes:
        match node.op:
            case "placeholder":
                values[node] = next(arguments)
            case "get_attr":
                values[node] = reduce(getattr, str(node.target).split("."), gm)
            case "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = do(node, args, kwargs)
            case "output":
                return fx.map_arg(node.args[0], values.__getitem__)
    raise ValueError("The graph has no output.")


def run_eager(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """As eager PyTorch does it."""
    return node.target(*args, **kwargs)  # type: ignore[operator]


def packet(node: fx.Node) -> str:
    """``aten.add`` of a node that calls ``aten.add.Tensor``; empty if the node calls no operator."""
    return "" if node.target is operator.getitem else str(node.target).rpartition(".")[0]


def placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return list(gm.graph.find_nodes(op="placeholder"))


def is_tangent(node: fx.Node) -> bool:
    """Whether an input is an incoming gradient: AOTAutograd names it so."""
    return "tangents" in node.name


def is_backward(gm: fx.GraphModule) -> bool:
    return any(map(is_tangent, placeholders(gm)))


def rewired(calls: Sequence[str], change: Change, as_is: bool = False) -> Compile:
    """Compiles a part to what runs it with the operators of these patterns changed."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        selected = {
            n for n in gm.graph.nodes if n.op == "call_function" and any(fnmatchcase(packet(n), c) for c in calls)
        }

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            if node not in selected:
                return run_eager(node, args, kwargs)
            result = change(node.target, *args, **kwargs)
            return result if as_is else with_layout_of(result, run_eager(node, args, kwargs))

        return lambda *inputs: run(gm, inputs, do)

    return compile


def with_layout_of(result: Any, like: Any) -> Any:
    """The values of ``result`` in the dtypes and strides of ``like``, where the sizes are the same."""
    if isinstance(result, Tensor) and isinstance(like, Tensor):
        if result.shape != like.shape or result is like:
            return result
        if result.dtype == like.dtype and result.stride() == like.stride():
            return result
        fresh = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        return fresh.copy_(result)
    if isinstance(result, tuple | list) and isinstance(like, tuple | list) and len(result) == len(like):
        return (
            type(result)(map(with_layout_of, result, like))
            if type(result) in (tuple, list)
            else tuple(map(with_layout_of, result, like))
        )
    return result
