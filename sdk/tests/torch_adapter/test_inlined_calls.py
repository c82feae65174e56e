"""What forward saves where calls are written out for the partitioner, and which calls are whole afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import keel
from keel.graph.decompose import decompose_call
from keel.spec.opset import decomposition_of
from keel.torch_adapter import Captured, capture, fake_mode_of_value
from keel.torch_adapter.inlined_calls import drop_detached, inline_calls, outline_calls

aten = torch.ops.aten
F = torch.nn.functional


def decomposed(node: fx.Node) -> fx.Graph | None:
    """The decomposition of every call that has one."""
    decomposition = decomposition_of(node.target)  # type: ignore[arg-type]
    return None if decomposition is None else decompose_call(node, decomposition, fake_mode_of_value(node.meta["val"]))


def graphs_of(fn: Callable[..., Any], *args: Any) -> dict[str, fx.Graph]:
    """The forward and the backward graph of ``fn``, which returns a scalar, compiled with ``decomposed``."""
    graphs: dict[str, fx.Graph] = {}

    def compiler(captured: Captured) -> Any:
        graphs[captured.kind] = captured.gm.graph

        def run(values: list[Any]) -> Sequence[Any]:
            results: Sequence[Any] = captured.gm(*values)
            return results

        return run

    torch.compile(fn, backend=lambda gm, inputs: capture(gm, inputs, compiler, decomposed=decomposed))(*args).backward()
    return graphs


def calls(graph: fx.Graph) -> Counter[str]:
    return Counter(str(n.target) for n in graph.nodes if n.op == "call_function")


def saved(graphs: dict[str, fx.Graph]) -> list[fx.Node]:
    """What forward computes and saves, but for views of inputs."""
    inputs = {n.name for n in graphs["forward"].find_nodes(op="placeholder")}
    return [
        n
        for n in graphs["backward"].find_nodes(op="placeholder")
        if n.name not in inputs and not n.name.startswith(("t", "permute"))
    ]


def saved_bytes(graphs: dict[str, fx.Graph]) -> int:
    return sum(n.meta["val"].nbytes for n in saved(graphs))


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


X, W, ROWS = leaf(8, 16), leaf(16, 1000), torch.arange(8)


def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x @ w, ROWS)


def test_a_loss_over_a_vocabulary_saves_a_number_for_each_row() -> None:
    """Beside the scores, an input, it saves the greatest of each row and the sum of exponentials, no probabilities."""
    graphs = graphs_of(lambda scores: F.cross_entropy(scores, ROWS), leaf(8, 1000))
    assert saved_bytes(graphs) < 8 * 20
    assert "aten._log_softmax.default" not in calls(graphs["forward"])


def test_calls_from_which_nothing_is_saved_are_whole() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (16,)).sum() + F.hardswish(x).sum()

    graphs = graphs_of(fn, X)
    assert calls(graphs["forward"])["aten.native_layer_norm.default"] == 1
    assert calls(graphs["forward"])["aten.hardswish.default"] == 1
    assert calls(graphs["backward"])["aten.native_layer_norm_backward.default"] == 1
    assert calls(graphs["backward"])["aten.hardswish_backward.default"] == 1


def test_an_activation_is_computed_again_and_not_saved() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return (y * torch.tanh(y + 1.0)).sum()

    graphs = graphs_of(fn, X, W)
    assert calls(graphs["forward"])["aten.tanh.default"] == 1
    assert {n.name for n in saved(graphs)} == {"mm"}
    assert calls(graphs["backward"])["aten.tanh.default"] == 1
    assert "aten.detach.default" not in calls(graphs["backward"])


def test_what_a_checkpoint_computes_again_is_not_saved() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.softmax(F.layer_norm(x @ w, (1000,)), -1) * 2.0

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, w, use_reentrant=False).cos().sum()

    graphs = graphs_of(fn, X, W)
    assert saved(graphs) == []
    assert calls(graphs["backward"])["aten.native_layer_norm.default"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        loss,
        lambda x, w: F.batch_norm((x @ w)[None].transpose(1, 2), None, None, training=True).pow(3).sum(),
        lambda x, w: (F.softmax(x @ w, -1) * F.hardswish(F.layer_norm(x @ w, (1000,)))).sum(),
        lambda x, w: F.mse_loss(F.leaky_relu(x @ w), F.elu(x @ w)) + F.group_norm(x @ w, 10).cos().sum(),
        lambda x, w: F.softmax(F.softmax(x @ w, -1) @ w.t(), 0).pow(3).sum(),
    ],
)
def test_gradients_are_those_of_eager(fn: Callable[..., torch.Tensor]) -> None:
    exact = torch.autograd.grad(fn(X.double(), W.double()), (X, W))
    for dtype, error in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x, w = (t.detach().to(dtype).requires_grad_() for t in (X, W))
        torch._dynamo.reset()
        own = torch.autograd.grad(keel.compile(fn, backends=["interp", "eager"], placement="order")(x, w), (x, w))
        eager = torch.autograd.grad(fn(x, w), (x, w))
        for mine, theirs, right in zip(own, eager, exact, strict=True):
            assert distance(mine, right) <= 2 * distance(theirs, right) + error


def distance(x: torch.Tensor, right: torch.Tensor) -> float:
    return float((x - right).norm() / right.norm())


def graph_of(fn: Callable[..., Any], *args: torch.Tensor) -> fx.Graph:
    graph: fx.Graph = make_fx(fn, tracing_mode="fake")(*args).graph
    return graph


def test_inlined_calls_are_put_back_in_order() -> None:
    """The argument of one call is the result of another, and there are several results."""

    def fn(x: torch.Tensor) -> Any:
        y, mean, _ = aten.native_layer_norm.default(x, [16], None, None, 1e-5)
        return aten._softmax.default(y, 1, False), mean

    graph = graph_of(fn, X.detach())
    before = calls(graph)
    inline_calls(graph, decomposed)
    assert "aten.native_layer_norm.default" not in calls(graph)
    outline_calls(graph)
    graph.lint()
    assert calls(graph) == Counter(before)


def test_a_call_stays_written_out_where_a_value_inside_it_is_used() -> None:
    graph = graph_of(lambda x: aten._log_softmax.default(x, 1, False), X.detach())
    inline_calls(graph, decomposed)
    (greatest,) = [n for n in graph.nodes if n.target is aten.amax.default]
    output = graph.output_node()
    output.args = ((output.args[0], greatest),)
    outline_calls(graph)
    assert calls(graph)["aten._log_softmax.default"] == 0


def test_a_call_stays_written_out_where_an_argument_is_lacking() -> None:
    graph = graph_of(lambda x: aten._softmax.default(x.cos(), 1, False), X.detach())
    inline_calls(graph, decomposed)
    (cosine,) = graph.find_nodes(op="call_function", target=aten.cos.default)
    (placeholder,) = graph.find_nodes(op="placeholder")
    placeholder.name = "saved"
    cosine.replace_all_uses_with(placeholder)
    graph.erase_node(cosine)
    outline_calls(graph)
    assert calls(graph)["aten._softmax.default"] == 0


def test_a_detached_result_stays() -> None:
    """The graph is made by hand: from 2.14 on PyTorch traces ``detach`` as ``alias``, which its partitioner knows."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    cos, sin = (graph.call_function(function, (x,)) for function in (aten.cos.default, aten.sin.default))
    result, other = (graph.call_function(aten.detach.default, (value,)) for value in (cos, sin))
    graph.output((result, graph.call_function(aten.add.Tensor, (other, 1))))
    drop_detached(graph)
    detached = graph.find_nodes(op="call_function", target=aten.detach.default)
    assert [node.args[0] for node in detached] == [cos]
