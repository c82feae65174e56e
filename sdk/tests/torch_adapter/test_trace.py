"""Callables traced without Dynamo: static and dynamic, with and without gradients, in no vendor's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch

from keel.torch_adapter import Captured
from keel.torch_adapter.trace import assignments, trace


def names(fn: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False) -> dict[str, list[str]]:
    """The operators of each graph, by kind; the result and gradients are compared with eager."""
    found: dict[str, list[str]] = {}

    def compiler(captured: Captured) -> Any:
        found[captured.kind] = [str(n.target) for n in captured.gm.graph.nodes if n.op == "call_function"]

        def run(args: list[Any]) -> Any:
            given = [*args, *captured.constants.values()]
            args.clear()
            return captured.gm(*given)

        return run

    traced = trace(fn, inputs, compiler, dynamic=dynamic)
    torch.testing.assert_close(traced(*inputs), fn(*inputs))
    wanted = [x for x in inputs if x.requires_grad]
    if wanted and torch.is_grad_enabled():
        both = (torch.autograd.grad(f(*inputs)[0].sum(), wanted) for f in (traced, fn))
        torch.testing.assert_close(*both)
    return found


def captured(fn: Callable[..., Any], inputs: list[torch.Tensor], *, dynamic: bool = False) -> Captured:
    """The graph, without gradients."""
    seen: list[Captured] = []

    def compiler(found: Captured) -> Any:
        seen.append(found)
        return lambda args: found.gm(*args)

    with torch.no_grad():
        trace(fn, inputs, compiler, dynamic=dynamic)
    return seen[0]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_pair_where_gradients_are_asked_for(dynamic: bool) -> None:
    x = torch.rand(3, 5, requires_grad=True)
    assert {k: v[-1:] for k, v in names(lambda x: (x.sin(),), x, dynamic=dynamic).items()} == {
        "forward": ["aten.sin.default"],
        "backward": ["aten.mul.Tensor"],
    }
    with torch.no_grad():
        assert list(names(lambda x: (x.sin(),), x, dynamic=dynamic)) == ["inference"]


@pytest.mark.slow
def test_no_operator_of_onednn() -> None:
    assert torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    lstm = torch.nn.LSTM(4, 3)
    with torch.no_grad():
        found = names(lambda x: (lstm(x)[0],), torch.rand(5, 2, 4))
    assert not [n for n in found["inference"] if "mkldnn" in n]
    assert torch.backends.mkldnn.enabled


def test_values_of_symbols_hold_for_the_guards() -> None:
    seen = captured(lambda x: (x.view(-1, 4).sum(1),), [torch.rand(6, 8)], dynamic=True)
    x = next(iter(seen.gm.graph.nodes)).meta["val"]
    rows, columns = (n.node.expr for n in x.shape)
    found = assignments(seen.fake_mode, [rows, columns])
    assert found[0] == {rows: 6, columns: 8} and len(found) > 1
    assert all(v[rows] * v[columns] % 4 == 0 for v in found)


def test_sizes_that_only_the_run_tells_have_values_too() -> None:
    seen = captured(lambda x: (x.nonzero(),), [torch.ones(6)])
    number = next(n for n in seen.gm.graph.nodes if "nonzero" in str(n.target)).meta["val"].shape[0].node.expr
    assert isinstance(number, sympy.Symbol)
    assert all(v[number] >= 0 for v in assignments(seen.fake_mode, [number]))


@pytest.mark.slow
def test_values_of_sizes_that_only_the_run_tells_hold_for_what_it_asserts() -> None:
    seen = captured(lambda x, start: (torch.narrow(x, 0, start, 6),), [torch.ones(7), torch.tensor(1)])
    start = next(n.args[2] for n in seen.gm.graph.nodes if "slice" in str(n.target)).meta["val"].node.expr
    found = [v[start] for v in assignments(seen.fake_mode, [start])]
    assert found[0] == 1 and set(found) <= {0, 1, -6, -7}
