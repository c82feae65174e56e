"""Control flow: every operator is known and has no form but its own; the clauses, tried on eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.graph.calls import call_of
from keel.spec import MEMBERS, OPSET, descent, is_normal
from keel.torch_adapter import has_effect

aten, higher = torch.ops.aten, torch.ops.higher_order
CONTROL = {name: op for name, op in MEMBERS.items() if op.family == "control flow"}
X = torch.arange(6.0).reshape(3, 2)


@pytest.mark.skipif(torch.__version__ < "2.13", reason="an older PyTorch lacks some of them")
@pytest.mark.parametrize("name", CONTROL)
def test_each_is_an_operator_of_this_pytorch_with_clauses(name: str) -> None:
    op = CONTROL[name]
    assert op.targets and op.clauses and op.doc.endswith(".") and op.tags & {"control", "effect"}


def test_a_traced_branch_is_a_member_in_normal_form() -> None:
    def fn(x: torch.Tensor) -> Any:
        return higher.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    graph = make_fx(fn, tracing_mode="fake")(X).graph
    (node,) = (n for n in graph.nodes if n.target is higher.cond)
    call = call_of(node)
    assert call is not None and OPSET[call.op].name == "cond" and is_normal(call) and descent(call) is None
    assert has_effect(call.op)


def test_branches() -> None:
    for pred, want in ((True, X.sin()), (False, X.cos())):
        assert torch.equal(higher.cond(torch.tensor(pred), torch.sin, torch.cos, (X,)), want)


def test_loops() -> None:
    def below(i: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return i < n

    def double(i: torch.Tensor, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, x * 2

    for n in (0, 3):
        i, x = higher.while_loop(below, double, (torch.tensor(0), X), (torch.tensor(n),))
        assert i == n and torch.equal(x, X * 2**n)


def test_scans() -> None:
    def step(carried: torch.Tensor, x: torch.Tensor, factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carried * 2 + x, carried * factor

    last, seen = higher.scan(step, (torch.zeros(2),), (X,), (torch.tensor(3.0),))
    want, carried = [], torch.zeros(2)
    for x in X:
        want.append(carried * 3)
        carried = carried * 2 + x
    assert torch.equal(last, carried) and torch.equal(seen, torch.stack(want))


def test_running_results_of_an_associative_graph_that_does_not_commute() -> None:
    matrices = torch.randn(5, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor]:
        return (a @ b,)

    (found,) = higher.associative_scan(product, (matrices,), ())
    want = matrices[0]
    for i, m in enumerate(matrices):
        want = want if i == 0 else want @ m
        torch.testing.assert_close(found[i], want)


def test_slices_apart() -> None:
    (found,) = higher.map_impl(lambda x, y: (x * y.sum(),), (X,), (X,))
    assert torch.equal(found, X * X.sum())


def test_a_state_draws_the_same_again() -> None:
    torch.manual_seed(0)
    state, first = higher.run_and_save_rng_state(aten.rand.default, [4], device=torch.device("cpu"))
    after = torch.get_rng_state()
    again = higher.run_with_rng_state(state, aten.rand.default, [4], device=torch.device("cpu"))
    assert torch.equal(first, again) and torch.equal(after, torch.get_rng_state())


def test_a_check_names_the_function_and_the_first_matrix() -> None:
    check = aten._linalg_check_errors
    assert check(torch.zeros(3, dtype=torch.int32), "linalg.inv", is_matrix=False) is None
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg.inv: \(Batch element 1\)"):
        check(torch.tensor([0, 2, 1], dtype=torch.int32), "linalg.inv", is_matrix=False)
    assert has_effect(check.default)


def test_the_first_token_holds_nothing() -> None:
    token = torch.ops.prims._make_token()
    assert token.numel() == 0 and torch.ops.prims._sink_tokens([token]) is None
    found = higher.with_effects(
        token, aten._linalg_check_errors.default, torch.tensor(0, dtype=torch.int32), "lu", is_matrix=True
    )
    assert found[0].numel() == 0
