"""Graphs of any size to place: a chain with skips, and layers of a transformer and of a ResNet one after another."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from keel import placement, universe

from ..memory_traffic import Block

LATENCY, BANDWIDTH = 5e-6, 1e10  # of the way between two backends: seconds, bytes a second
LAUNCH = 5e-6  # seconds to enter a part
UNSUPPORTED = 0.1


def chain(calls: int) -> fx.GraphModule:
    """Pointwise calls in a row; every sixth adds what was made six calls before."""
    graph = fx.Graph()
    value = torch.empty(64, 64, device="meta")
    nodes = [graph.placeholder("x")]
    for i in range(calls):
        skips = i % 6 == 5
        nodes.append(
            graph.call_function(torch.ops.aten.add.Tensor, (nodes[-1], nodes[-6]))
            if skips
            else graph.call_function(torch.ops.aten.relu.default, (nodes[-1],))
        )
    for node in nodes:
        node.meta["val"] = value
    graph.output((nodes[-1],))
    return fx.GraphModule({}, graph)


class Bottleneck(nn.Module):
    """A block of ResNet-50, as it is in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            (
                nn.Conv2d(256, 64, 1, bias=False),
                nn.Conv2d(64, 64, 3, padding=1, bias=False),
                nn.Conv2d(64, 256, 1, bias=False),
            )
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in (64, 64, 256))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = norm(conv(y))
            y = y.relu() if conv is not self.convs[2] else y
        return (x + y).relu()


def layered(make: Callable[[], nn.Module], shape: tuple[int, ...], calls: int) -> fx.GraphModule:
    """Chains layers until the graph has that many calls.  Each has parameters of its own; the last may be cut off."""
    layer = _traced(make().eval(), torch.randn(shape))
    x, *parameters = layer.graph.find_nodes(op="placeholder")
    (result,) = layer.graph.output_node().all_input_nodes
    inner = [n for n in layer.graph.nodes if n.op == "call_function"]
    graph, made, layers = fx.Graph(), 0, 0
    operand = _input(graph, x, "x")
    while made < calls:
        layers += 1
        values = {x: operand, **{p: _input(graph, p, f"{p.name}_of_{layers}") for p in parameters}}
        for node in inner:
            if made == calls and node.target is not operator.getitem:
                break
            values[node] = graph.node_copy(node, values.__getitem__)
            made += node.target is not operator.getitem
        operand = values.get(result, operand)
    graph.output(
        tuple(n for n in graph.nodes if n.op == "call_function" and not n.users and isinstance(n.meta["val"], Tensor))
    )
    return fx.GraphModule({}, graph)


def _input(graph: fx.Graph, like: fx.Node, name: str) -> fx.Node:
    node = graph.placeholder(name)
    node.meta["val"] = like.meta["val"]
    return node


def _traced(layer: nn.Module, x: Tensor) -> fx.GraphModule:
    """The layer in ATen calls; its parameters and buffers are inputs after the first."""
    state = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
    names, graphs = list(state), list[fx.GraphModule]()

    def run(x: Tensor, *values: Tensor) -> tuple[Tensor]:
        return (torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,)),)

    def keep(captured: Any) -> Callable[[list[Any]], Any]:
        graphs.append(captured.gm)
        return lambda inputs: captured.gm(*inputs)

    with torch.no_grad():
        universe.trace(run, [x, *(v.detach() for v in state.values())], keep)
    return graphs[0]


FAMILIES: Mapping[str, Callable[[int], fx.GraphModule]] = {
    "chain": chain,
    "transformer": partial(layered, Block, (2, 128, 768)),
    "resnet": partial(layered, Bottleneck, (1, 256, 28, 28)),
}


def unsupported(units: placement.CallGraph) -> set[str]:
    """The names of a tenth of the calls."""
    r = random.Random(0)
    return {node.name for node in units.nodes if r.random() < UNSUPPORTED}


def priced(units: placement.CallGraph, backends: int, refused: set[str], seed: int = 0) -> placement.Problem:
    """What the calls cost on backends with a memory of their own each.

    The first is the fastest and refuses ``refused``; the second is the host, from where inputs come and where results
    end, and takes all; the third is faster than that, and refuses some calls.
    """
    r = np.random.default_rng(seed)
    count = len(units.nodes)
    compute = r.integers(1, 50, (count, 1)) * 1e-6 * r.uniform([1, 3, 1], [2, 6, 4], (count, 3))
    compute[[node.name in refused for node in units.nodes], 0] = np.inf
    compute[r.random(count) < UNSUPPORTED, 2] = np.inf
    makers, readers, sizes, ends = tensors_of(units)
    ways = (LATENCY + np.array(sizes) / BANDWIDTH)[:, None, None] * (1 - np.eye(backends))
    moved = placement.tensors(makers, readers, ways, home=1, ends=ends, size=sizes)
    return placement.problem(compute[:, :backends], units.needs, moved, launch=LAUNCH)


def _producer(node: fx.Node) -> fx.Node:
    """The call whose result a node is, or is a part of."""
    return node.all_input_nodes[0] if node.target is operator.getitem else node


def tensors_of(units: placement.CallGraph) -> tuple[list[int], list[list[int]], list[int], list[int]]:
    """One tensor for each unit, with all bytes that it makes, and one for each input: makers, readers, bytes, where
    they must end.
    """
    graph = units.nodes[0].graph
    readers: dict[fx.Node, set[int]] = {}
    for unit, node in enumerate(units.nodes):
        for operand in node.all_input_nodes:
            readers.setdefault(_producer(operand), set()).add(unit)
    results = {_producer(n) for n in graph.output_node().all_input_nodes}
    collected = [n for n in graph.nodes if n in readers or n in results]
    return (
        [units.numbers.get(n, -1) for n in collected],
        [sorted(readers.get(n, ())) for n in collected],
        [_bytes(n.meta["val"]) for n in collected],
        [1 if n in results else -1 for n in collected],
    )


def _bytes(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(_bytes(v) for v in value)
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0
