"""What a library call does to a bias in a pass of its own becomes a node of its own, which can fuse with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from keel.loops.builder import Builder, LoopDefinition, Operand, Value, trace_rule
from keel.plugin import BiasPass
from keel.schedule.tensor_graph import ExternCall, LoopNode, Node, Slot, Tensor, TensorGraph
from keel.types import Call, TensorType


def separate_biases(graph: TensorGraph) -> TensorGraph:
    """Returns ``graph`` with the passes that the externs of its calls state (``Extern.bias``) as nodes."""
    if not any(isinstance(n, ExternCall) and n.extern.bias is not None for n in graph.nodes):
        return graph
    out = replace(graph, tensors=list(graph.tensors), nodes=[])
    for node in graph.nodes:
        out.nodes += [node] if isinstance(node, LoopNode) else _separated(out.tensors, node)
    return out


def _separated(tensors: list[Tensor], node: ExternCall) -> Iterator[Node]:
    bias = node.extern.bias
    if bias is not None and bias.added is not None and isinstance(node.args[bias.added], Slot):
        yield from _added(tensors, node, bias.added)
    elif bias is not None and bias.summed is not None and node.results[bias.summed] >= 0:
        yield from _summed(tensors, node, bias, bias.summed)
    else:
        yield node


def _added(tensors: list[Tensor], node: ExternCall, position: int) -> Iterator[Node]:
    """Yields the call without its bias, and the sum of both."""
    result, bias = node.results[0], node.args[position].number
    tensors.append(replace(tensors[result], name=f"{tensors[result].name}_unbiased"))
    product = len(tensors) - 1
    yield replace(node, args=_with(node.args, position, None), results=(product, *node.results[1:]))
    definition = _defined(_add, [tensors[product].type, tensors[bias].type], tensors[result].type)
    yield LoopNode(f"{node.name}_bias", definition, (product, bias), (result,), module=node.module)


def _summed(tensors: list[Tensor], node: ExternCall, bias: BiasPass, number: int) -> Iterator[Node]:
    """Yields the call without the gradient of its bias, if it has another result, and that gradient."""
    assert bias.mask is not None
    results = _with(node.results, number, -1)
    if any(r >= 0 for r in results):
        mask = _with(tuple(node.args[bias.mask]), number, False)
        yield replace(node, args=_with(node.args, bias.mask, list(mask)), results=results)
    gradient, result = node.args[0].number, node.results[number]
    definition = _defined(_sum, [tensors[gradient].type], tensors[result].type)
    yield LoopNode(f"{node.name}_bias", definition, (gradient,), (result,), module=node.module)


def _with(values: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*values[:position], value, *values[position + 1 :])


def _defined(rule: Any, operands: list[TensorType], result: TensorType) -> LoopDefinition:
    return trace_rule(rule, Call(torch.ops.aten.add.Tensor, tuple(operands), {}, (result,)))


def _add(b: Builder, x: Operand, bias: Operand) -> Value:
    at = b.at
    return b.cast(b.math(x[at]) + b.math(bias[at[1:2]]), x.type.dtype)


def _sum(b: Builder, gradient: Operand) -> Value:
    (channel,) = b.at
    batch, _, *image = gradient.type.shape
    first, *rest = b.fold_over((batch, *image))
    return b.cast(b.reduce("sum", b.math(gradient[(first, channel, *rest)])), gradient.type.dtype)
