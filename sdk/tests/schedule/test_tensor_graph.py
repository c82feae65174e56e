"""What the tensors and nodes of a part are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from keel.loops.lower import lower
from keel.schedule.tensor_graph import LoopNode, TensorGraph, build_tensor_graph
from keel.torch_adapter import record

aten = torch.ops.aten


def tensor_graph(function: Callable[..., Any], *shapes: tuple[int, ...]) -> TensorGraph:
    mode = FakeTensorMode()
    with mode:
        args = [torch.empty(shape) for shape in shapes]
    return build_tensor_graph(fx.GraphModule(torch.nn.Module(), record(function, args, {}, mode)), lower, {})


def loop_node(graph: TensorGraph) -> LoopNode:
    (node,) = graph.nodes
    assert isinstance(node, LoopNode)
    return node


def test_an_operand_that_gives_no_element_is_left_out() -> None:
    graph = tensor_graph(lambda x, y: aten.copy.default(x, y), (3,), (3,))
    node = loop_node(graph)
    assert node.operands == (graph.inputs[1],)
    assert [step.operand for step in node.definition.steps] == [0]


def test_the_base_of_a_scatter_is_an_operand_though_no_step_reads_it() -> None:
    graph = tensor_graph(lambda x, src: aten.scatter.value(x, 0, aten.gt.Scalar(src, 0).long(), 1.0), (3,), (3,))
    scatter = graph.nodes[-1]
    assert isinstance(scatter, LoopNode) and scatter.definition.base == 0
    assert scatter.operands[0] == graph.inputs[0] and len(scatter.operands) == 2
