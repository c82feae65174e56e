"""What the tensors and nodes of a part are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from keel import Extern, aten_externs
from keel.loops.lower import lower
from keel.schedule.tensor_graph import LoopNode, TensorGraph, build_tensor_graph
from keel.torch_adapter import record

aten = torch.ops.aten
MM = {"aten.mm.default": aten_externs("cpu")["aten.mm.default"]}


def tensor_graph(
    function: Callable[..., Any], *shapes: tuple[int, ...], externs: Mapping[str, Extern] | None = None
) -> TensorGraph:
    mode = FakeTensorMode()
    with mode:
        args = [torch.empty(shape) for shape in shapes]
    return build_tensor_graph(fx.GraphModule(torch.nn.Module(), record(function, args, {}, mode)), lower, externs or {})


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


def test_a_view_that_its_schema_does_not_declare_shares_memory() -> None:
    def product(x: Tensor, y: Tensor) -> Tensor:
        return aten._unsafe_view.default(aten.mm.default(x, y), (2, 3, 5))

    graph = tensor_graph(product, (6, 4), (4, 5), externs=MM)
    (result,) = graph.outputs
    assert graph.base(result) == (graph.nodes[0].results[0], 0)


@pytest.mark.parametrize(
    "results",
    [
        lambda x, unsafe: (unsafe(x),),
        lambda x, unsafe: (unsafe(y := aten.mm.default(x, x)), y),
        lambda x, unsafe: (y := aten.mm.default(x, x), aten.t.default(unsafe(y))),
        lambda x, unsafe: (unsafe(y := aten.mm.default(x, x)), unsafe(y)),
        lambda x, unsafe: (unsafe(y := aten.mm.default(x, x)), unsafe(unsafe(y))),
        lambda x, unsafe: (unsafe(aten.t.default(x)),),
    ],
    ids=["an input", "a result, first", "a result", "twice", "a view of a view", "a view of an input"],
)
def test_results_share_memory_only_as_schemas_declare(results: Callable[..., Any]) -> None:
    graph = tensor_graph(lambda x: results(x, lambda y: aten._unsafe_view.default(y, (4, 4))), (4, 4), externs=MM)
    outside = [t for t in (*graph.inputs, *graph.outputs) if isinstance(t, int)]
    assert len({graph.base(t)[0] for t in outside}) == len(outside)


def test_views_of_one_undeclared_view_share_its_memory() -> None:
    def views(x: Tensor) -> tuple[Tensor, Tensor]:
        y = aten._unsafe_view.default(aten.mm.default(x, x), (2, 8))
        return y, aten.t.default(y)

    graph = tensor_graph(views, (4, 4), externs=MM)
    first, second = graph.outputs
    assert graph.base(first) == graph.base(second)


def test_gradients_of_a_convolution_are_a_node_each() -> None:
    def gradients(grad: Tensor, image: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
        rest = ([4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        return aten.convolution_backward.default(grad, image, weight, *rest, [True, False, True])

    graph = tensor_graph(gradients, (2, 4, 5, 5), (2, 3, 7, 7), (4, 3, 3, 3))
    image, bias = (n for n in graph.nodes if isinstance(n, LoopNode))
    assert graph.outputs == [*image.results, None, *bias.results]
    assert image.operands == (graph.inputs[0], graph.inputs[2]) and bias.operands == (graph.inputs[0],)
    assert [graph.tensors[n.results[0]].type.shape for n in (image, bias)] == [(2, 3, 7, 7), (4,)]
