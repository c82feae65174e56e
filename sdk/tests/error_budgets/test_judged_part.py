"""Legal evaluations are within the budget; wrong ones are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
from keel import KeelError
from keel.error_budgets import judge_part, judge_values
from keel.plugin import Arithmetic

from ..line import trace

F = torch.nn.functional


def graph(f: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    gm: fx.GraphModule = trace(f, *inputs)
    return gm


def mixed(x: Tensor, w: Tensor, b: Tensor) -> Any:
    """Products, a norm, a decision, a softmax, an index, and a sum."""
    h = torch.relu(F.layer_norm(x @ w, (32,)) + b)
    return h.softmax(-1), h.argmax(-1), (h * (h > 0.5)).sum(0), h.sum(), h.round()


def inputs_of(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.randn(s).to(dtype) for s in ((16, 64), (64, 32), (32,))]


def defects(results: list[Any], want: Callable[..., Any], *inputs: Tensor, **more: Any) -> list[str]:
    return [one.judgment.defect for one in judge_part(graph(want, *inputs), inputs, results, **more)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_legal_evaluations_are_within_the_budget(dtype: torch.dtype) -> None:
    inputs = inputs_of(dtype)
    eager = mixed(*inputs)
    wider = mixed(*(x.to(torch.float32 if dtype.itemsize == 2 else torch.float64) for x in inputs))
    fused = [w.to(e.dtype) for w, e in zip(wider, eager, strict=True)]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    reordered = mixed(inputs[0][:, order], inputs[1][order], inputs[2])
    for results in (eager, fused, reordered):
        assert not any(defects(list(results), mixed, *inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "output"), [(torch.float32, k) for k in range(5)] + [(torch.bfloat16, k) for k in (0, 4)]
)
def test_one_wrong_element_is_found(dtype: torch.dtype, output: int) -> None:
    inputs = inputs_of(dtype)
    results = [x.clone() for x in mixed(*inputs)]
    flat = results[output].view(-1)
    flat[-1] = (flat[-1] + 7) % 32 if output == 1 else flat[-1] + 1.5
    found = defects(results, mixed, *inputs)
    assert [k for k, sentence in enumerate(found) if sentence] == [output]
    assert "is wrong" in found[output]


def test_the_place_in_a_transposed_result_is_named() -> None:
    x, w = torch.randn(16, 64), torch.randn(64, 32)

    def transposed(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).t()

    result = transposed(x, w).clone()
    result[30, 7] += 1
    assert "Its element [30, 7] is" in defects([result], transposed, x, w)[0]


def test_columns_of_a_product_may_have_larger_errors_than_the_average_of_a_row() -> None:
    torch.manual_seed(6)
    g = torch.randn(256, 512) * torch.exp(torch.randn(512))
    x = torch.randn(256, 512) * torch.exp(1.5 * torch.randn(512))

    def gradient(g: Tensor, x: Tensor) -> Tensor:
        return g.t() @ x

    order = torch.randperm(256)
    assert defects([g[order].t() @ x[order]], gradient, g, x) == [""]


def test_products_that_are_cut_are_wrong_unless_the_backend_declares_it() -> None:
    x, w = torch.randn(32, 64), torch.randn(64, 32)

    def product(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    def cut(x: Tensor) -> Tensor:
        return (x.view(torch.int32) & -(1 << 13)).view(torch.float32)

    results = [cut(x) @ cut(w)]
    assert "is allowed" in defects(results, product, x, w)[0]
    assert defects(results, product, x, w, arithmetic=Arithmetic(products={torch.float32: "tf32"})) == [""]


def near_zero() -> tuple[Tensor, Tensor]:
    """Factors of a product whose first element is 0 but for rounding, and whose others are not."""
    return torch.cat([torch.tensor([[1.0, 1.0, -1.0]]), torch.ones(63, 3)]), torch.tensor([[0.1], [0.2], [0.3]])


def test_a_decision_may_be_either_only_within_the_error() -> None:
    def decided(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        above = (x @ w).flatten() > 0
        return above, torch.where(above, 1.0, -1.0)

    for flipped, is_wrong in ((0, False), (1, True)):
        above, sign = (x.clone() for x in decided(*near_zero()))
        above[flipped], sign[flipped] = ~above[flipped], -sign[flipped]
        assert [bool(d) for d in defects([above, sign], decided, *near_zero())] == [is_wrong, is_wrong]


def test_gradients_of_a_relu_may_differ_at_its_kink() -> None:
    def gradient(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(g, x @ w, 0).flatten()

    inputs = (torch.ones(64, 1), *near_zero())
    for flipped, is_wrong in ((0, False), (1, True)):
        results = gradient(*inputs)
        results[flipped] = 1 - results[flipped]
        assert [bool(d) for d in defects([results], gradient, *inputs)] == [is_wrong]


def test_values_that_are_not_finite_are_compared_by_their_kind() -> None:
    def exponential(x: Tensor) -> Tensor:
        return x.exp()

    x = torch.tensor([1.0, 1000.0, float("nan"), -float("inf")])
    assert defects([x.exp()], exponential, x) == [""]
    for k, value in ((0, float("nan")), (1, 5.0), (2, 0.0), (3, float("inf"))):
        results = x.exp()
        results[k] = value
        assert defects([results], exponential, x) != [""]


def test_random_numbers_are_drawn_again() -> None:
    def dropped(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) * 2

    x = torch.randn(8, 8)
    gm = graph(dropped, x)
    torch.manual_seed(4)
    results = [dropped(x)]
    torch.manual_seed(4)
    [one] = judge_part(gm, [x], results)
    assert one.is_drawn and not one.judgment.is_over
    [one] = judge_part(gm, [x], results)
    assert one.judgment.is_over


def test_values_are_judged_one_by_one_where_an_error_is_made() -> None:
    def chain(x: Tensor) -> Tensor:
        return ((x.exp() + 1).log() * 3).tanh()

    x = torch.randn(16)
    gm = graph(chain, x)
    values: dict[str, Any] = {}
    value: Any = x
    for node in gm.graph.nodes:
        if node.op == "call_function":
            value = node.target(value, *node.args[1:])
            value = value * 1.001 if "log" in node.name else value
            values[node.name] = value
    judged = judge_values(gm, [x], values, one_by_one=True)
    assert [one.operator for one in judged if one.judgment.is_over] == ["aten.log.default"]
    assert [one.judgment.is_over for one in judge_values(gm, [x], values)] == [False, False, True, True, True]


def test_a_graph_with_effects_is_not_run_again() -> None:
    def printed(x: Tensor) -> Tensor:
        torch.ops.aten._print("again")
        return x + 1

    x = torch.ones(2)
    gm = graph(printed, x)
    with pytest.raises(KeelError, match="cannot be run again"):
        judge_part(gm, [x], [x + 1])


@pytest.mark.slow
def test_a_size_that_depends_on_rounding_is_not_judged() -> None:
    def chosen(x: Tensor, w: Tensor) -> Tensor:
        return torch.nonzero(x @ w > 0)

    x = torch.tensor([[1.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
    w = torch.tensor([[0.1], [0.2], [0.3]])
    gm = keel_graph(chosen, x, w)
    for results in (torch.tensor([[1, 0]]), torch.tensor([[0, 0], [1, 0]])):
        [one] = judge_part(gm, [x, w], [results])
        assert not one.judgment.is_over


def keel_graph(f: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    """The graph that Keel compiles, with sizes that are data."""
    graphs: list[fx.GraphModule] = []

    def compile(gm: fx.GraphModule) -> Any:
        graphs.append(gm)
        return gm.forward

    acme = keel.Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        keel.compile(f, backends=[acme], fullgraph=True)(*inputs)
    return graphs[0]
