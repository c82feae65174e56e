"""What only a run tells has a symbol of its own up to the assertion on it; what relies on it takes what that gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel.torch_adapter import Captured, capture, expression, late

from ..releases import keeps_messages, skip_without

aten = torch.ops.aten
ASSERTED = aten._functional_assert_scalar.default


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def graphs(fn: Callable[..., Any], *inputs: Tensor) -> list[fx.GraphModule]:
    """What is captured of the function."""
    seen: list[Captured] = []

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(graph)
        return lambda inputs: graph.gm(*inputs, *graph.constants.values())

    torch.compile(fn, backend=lambda gm, inputs: capture(gm, inputs, compiler), fullgraph=True)(*inputs)
    return [graph.gm for graph in seen]


def calls(gm: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def only(gm: fx.GraphModule, target: Any) -> fx.Node:
    (node,) = gm.graph.find_nodes(op="call_function", target=target)
    return node


def test_what_is_asserted_of_a_size_is_known_of_the_assertions_result() -> None:
    def fn(x: Tensor) -> Tensor:
        z = x.nonzero()
        y = z * 2
        torch._check(z.size(0) == 2)
        return y

    (gm,) = graphs(fn, torch.tensor([0, 1, 2]))
    made, asserted = only(gm, aten.nonzero.default), only(gm, ASSERTED)
    assert late(expression(made.meta["val"].shape[0])) and asserted.args[2] is made
    assert tuple(asserted.meta["val"].shape) == (2, 1)
    assert only(gm, aten.mul.Tensor).args[0] is asserted
    assert aten._assert_scalar.default not in {n.target for n in gm.graph.nodes}


def test_sizes_of_which_nothing_is_asserted_keep_their_symbols() -> None:
    (gm,) = graphs(lambda x: x.nonzero() * 2, torch.tensor([0, 1, 2]))
    assert ASSERTED not in {n.target for n in gm.graph.nodes}


def test_a_size_that_is_said_to_be_twice_another_is_compared_with_it() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        n, m = x.sum().item(), y.sum().item()
        torch._check(n >= 0)
        torch._check(m >= 0)
        torch._check(2 * n == m)
        return torch.zeros(n, 2).view(m) + torch.ones(m)

    (gm,) = graphs(fn, torch.tensor([1, 2]), torch.tensor([6]))
    first, second = gm.graph.find_nodes(op="call_function", target=aten._local_scalar_dense.default)
    one, other = (expression(n.meta["val"]) for n in (first, second))
    assert one.is_Symbol and other.is_Symbol and one != other
    conditions = [
        n.args[0].meta["val"] for n in gm.graph.find_nodes(op="call_function", target=aten._assert_scalar.default)
    ]
    assert any(expression(c).free_symbols == {one, other} for c in conditions)


def test_all_results_of_a_call_wait() -> None:
    def fn(x: Tensor) -> Tensor:
        values, counts = torch.unique(x, return_counts=True)
        torch._check(values.numel() == 2)
        return values * counts

    (gm,) = graphs(fn, torch.tensor([1, 2, 2]))
    used = only(gm, aten.mul.Tensor).all_input_nodes
    assert [n.target for n in used] == [ASSERTED, ASSERTED] and used[0] is not used[1]


def test_a_number_that_is_asserted_is_plain_behind_the_assertion() -> None:
    def fn(x: Tensor) -> Tensor:
        n = x.sum().item()
        torch._check(n == 3)
        return x * n

    (gm,) = graphs(fn, torch.tensor([1, 2]))
    number, assertion = only(gm, aten._local_scalar_dense.default), only(gm, aten._assert_scalar.default)
    assert late(expression(number.meta["val"])) and assertion.args[0].all_input_nodes == [number]  # type: ignore[union-attr]
    assert only(gm, aten.mul.Tensor).args[1] == 3


@pytest.mark.slow
def test_bounds_are_asserted_directly_behind_the_number() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        n = x.sum().item()
        y = w.sin()
        torch._check(n >= 0)
        torch._check(n <= w.shape[0])
        return w[:n] * y.sum()

    (gm,) = graphs(fn, torch.tensor([1, 2]), torch.ones(5))
    made = calls(gm)
    number = made.index("aten._local_scalar_dense.default")
    last = len(made) - 1 - made[::-1].index("aten._assert_scalar.default")
    between = {name for name in made[number + 1 : last] if name.startswith("aten.")}
    assert between <= {"aten._assert_scalar.default"}
    assert made.index("aten.slice.Tensor") > last


def test_an_assertion_on_a_size_that_nothing_else_uses_is_kept() -> None:
    def fn(x: Tensor) -> Tensor:
        torch._check(x.nonzero().size(0) == 2)
        return x + 1

    (gm,) = graphs(fn, torch.tensor([0, 1, 2]))
    assert only(gm, aten.nonzero.default) in cone_of(only(gm, aten._assert_scalar.default))


def test_what_a_call_needs_of_a_size_is_asserted_where_nobody_uses_its_result() -> None:
    def fn(x: Tensor) -> Tensor:
        x.nonzero().view(2, 1)
        return x + 1

    (gm,) = graphs(fn, torch.tensor([0, 1, 2]))
    assert only(gm, aten.nonzero.default) in cone_of(only(gm, aten._assert_scalar.default))


def test_a_truth_value_that_nothing_else_uses_is_asserted() -> None:
    def fn(x: Tensor) -> Tensor:
        torch._check(x.any().item())
        return x + 1

    (gm,) = graphs(fn, torch.tensor([True, False]))
    number = only(gm, aten._local_scalar_dense.default)
    assertions = gm.graph.find_nodes(op="call_function", target=aten._assert_scalar.default)
    assert assertions and all(number in cone_of(n) for n in assertions)


def cone_of(node: fx.Node) -> set[fx.Node]:
    """The nodes that a node is computed from."""
    found, todo = set[fx.Node](), [node]
    while todo:
        more = [n for n in todo.pop().all_input_nodes if n not in found]
        found |= {*more}
        todo += more
    return found


def test_the_users_message_is_kept() -> None:
    skip_without(keeps_messages)

    def fn(x: Tensor) -> Tensor:
        torch._check(x.nonzero().size(0) == 2, lambda: "There are two.")
        return x + 1

    (gm,) = graphs(fn, torch.tensor([0, 1, 2]))
    assert only(gm, aten._assert_scalar.default).args[1] == "There are two."  # and no result, which nobody would use


def test_an_assertion_without_a_message_is_kept() -> None:
    def fn(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all())
        return x + 1

    (gm,) = graphs(fn, torch.ones(2))
    assert "Expected" in str(only(gm, aten._assert_async.msg).args[1])


@pytest.mark.slow
def test_assertions_in_branches_are_made_too() -> None:
    def some(x: Tensor) -> Tensor:
        z = x[x > 0]
        torch._check(z.numel() == 2)
        return (z + 1).sum()

    (gm,) = graphs(lambda x, p: torch.cond(p, some, lambda x: x.sum(), (x,)), torch.ones(2), torch.tensor(True))
    bodies = [getattr(gm, str(n.target)) for n in gm.graph.find_nodes(op="get_attr")]
    assert [ASSERTED in {n.target for n in body.graph.nodes} for body in bodies] == [True, False]


@pytest.mark.slow
def test_what_backward_takes_has_been_asserted_in_forward() -> None:
    def fn(x: Tensor) -> Tensor:
        z = x[x > 0]
        torch._check(z.numel() == 2)
        return z * z

    seen: list[Captured] = []

    def compiler(graph: Captured) -> Callable[[list[Any]], Any]:
        seen.append(graph)
        return lambda inputs: graph.gm(*inputs, *graph.constants.values())

    compiled = torch.compile(fn, backend=lambda gm, inputs: capture(gm, inputs, compiler), fullgraph=True)
    compiled(torch.ones(2, requires_grad=True)).sum().backward()
    forward, backward = (graph.gm for graph in seen)
    made = only(forward, aten.index.Tensor)
    assert made not in forward.graph.output_node().all_input_nodes
    assert all(
        tuple(n.meta["val"].shape) == (2,)
        for n in backward.graph.find_nodes(op="placeholder")
        if n.meta["val"].dtype == torch.float32
    )
