"""Graphs placed by cost, from the options to what runs: values, gradients, sizes, and what is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import keel
from keel import Backend, Cost, KeelError, KeelWarning
from keel.compiler import DynamoBackend
from keel.cost import Link
from keel.events import Event, GraphCompiled
from keel.settings import read_settings

from .line import takes

SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10)
PRODUCTS = ("mm", "addmm", "t", "permute", "transpose")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def acme(**more: Any) -> Backend:
    """Fast at products, and at nothing else."""
    return takes(
        *PRODUCTS,
        "relu",
        "threshold_backward",
        name="acme",
        cost=replace(SHEET, flops={torch.float32: 1e12}, scalars=1e6, **more),
    )


def plain(cost: Cost | None = SHEET) -> Backend:
    return Backend(name="plain", device="*", supports=lambda call: None, compile=lambda gm: gm.forward, cost=cost)


def compiled(
    fn: Callable[..., Any], *args: Any, dynamic: bool | None = None, **options: Any
) -> tuple[Any, list[GraphCompiled]]:
    heard: list[GraphCompiled] = []

    def listen(event: Event) -> None:
        if isinstance(event, GraphCompiled):
            heard.append(event)

    run = torch.compile(fn, backend=DynamoBackend(read_settings(None, options), listen), dynamic=dynamic)
    return run(*args), heard


def owners(heard: list[GraphCompiled]) -> dict[str, str]:
    """The owner of each operator, the last one where there are several."""
    nodes = {n.name: str(n.target).split(".")[1] for c in heard for n in c.gm.graph.nodes if n.op == "call_function"}
    return {nodes[name]: part.owner.name for c in heard for part in c.plan.parts for name in part.nodes}


def model(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).relu() @ w).sin()


X, W = torch.randn(64, 64), torch.randn(64, 64)


def test_auto_places_by_cost_where_every_backend_has_a_sheet() -> None:
    result, heard = compiled(model, X, W, backends=[acme(), plain()])
    torch.testing.assert_close(result, model(X, W))
    assert owners(heard) == {"mm": "acme", "relu": "plain", "sin": "plain"}
    assert heard[0].plan.claim is not None and heard[0].bills is not None
    assert sum(b.seconds for b in heard[0].bills) == pytest.approx(heard[0].plan.claim.seconds)


@pytest.mark.parametrize(
    "options",
    [
        {"backends": [acme(), plain()], "placement": "order"},
        {"backends": [acme(), plain(None)]},
        {"backends": [acme()]},
    ],
)
def test_by_order_the_first_takes_what_it_can(options: dict[str, Any]) -> None:
    _, heard = compiled(model, X, W, **options)
    assert owners(heard)["relu"] == "acme" and heard[0].plan.claim is None


def test_by_cost_the_last_resort_competes() -> None:
    result, heard = compiled(model, X, W, backends=[acme(link=Link(1e4, 1e-3))], placement="cost")
    torch.testing.assert_close(result, model(X, W))
    assert set(owners(heard).values()) == {"eager"}


@pytest.mark.parametrize(("gain", "expected"), [(0.05, {"acme"}), (0.2, {"acme", "last"})])
def test_a_last_resort_that_competes_is_mixed_in_only_where_that_is_worth_it(gain: float, expected: set[str]) -> None:
    seconds = {"aten.mm": 1.0, "aten.relu": 1.0, "aten.sin": 1.0}
    some = replace(plain(replace(SHEET, seconds=seconds)), name="acme")
    last = replace(
        plain(replace(SHEET, seconds={**seconds, "aten.mm": 2.0, "aten.sin": 1.0 - 4 * gain})),
        name="last",
        last_resort=True,
    )
    _, heard = compiled(model, X, W, backends=[some, last], placement="cost")
    assert set(owners(heard).values()) == expected


@pytest.mark.slow
def test_gradients_of_a_mixture() -> None:
    layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    expected = torch.autograd.grad(layer(X).sum(), list(layer.parameters()))
    result, heard = compiled(layer, X, backends=[acme(link=Link(1e12, 1e-9)), plain()])
    for found, wanted in zip(torch.autograd.grad(result.sum(), list(layer.parameters())), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert [c.kind for c in heard] == ["forward", "backward"]
    assert all({"acme", "plain"} <= {p.owner.name for p in c.plan.parts} for c in heard)


def test_symbolic_sizes_are_placed_by_what_they_were_first() -> None:
    for n, owner in ((4, "plain"), (512, "acme")):
        torch.compiler.reset()
        x = torch.randn(n, 64)
        result, heard = compiled(
            lambda x, w: x @ w, x, W, dynamic=True, backends=[acme(link=Link(1e12, 1e-4)), plain()]
        )
        torch.testing.assert_close(result, x @ W)
        assert owners(heard) == {"mm": owner}


def test_equal_graphs_are_placed_equally() -> None:
    plans = []
    for _ in range(2):
        torch.compiler.reset()
        plans.append(str(compiled(model, X, W, backends=[acme(), plain()])[1][0].plan))
    assert plans[0] == plans[1]


def test_a_part_that_cannot_be_compiled_is_placed_again_at_least_cost() -> None:
    def fails(gm: Any) -> Any:
        raise ValueError("no room")

    broken = replace(acme(), compile=fails)
    slow = replace(plain(replace(SHEET, call=1.0)), name="slow")
    with pytest.warns(KeelWarning, match="plain compiles it instead"):
        result, heard = compiled(model, X, W, backends=[broken, slow, plain()])
    torch.testing.assert_close(result, model(X, W))
    assert set(owners(heard).values()) == {"plain"} and heard[0].plan.claim is not None


def test_a_graph_is_written_out_as_far_as_it_is_cheapest() -> None:
    """A backend that takes a call whole does not get it if the pieces are cheaper on another."""
    whole = takes("gelu", name="whole", cost=replace(SHEET, seconds={"aten.gelu": 1.0}))
    pieces = takes("mul", "add", "erf", "tanh", "pow", name="pieces", cost=SHEET)
    result, heard = compiled(torch.nn.functional.gelu, X, backends=[whole, pieces])
    torch.testing.assert_close(result, torch.nn.functional.gelu(X))
    assert {p.owner.name for p in heard[0].plan.parts} == {"pieces"}
    assert owners(compiled(torch.nn.functional.gelu, X, backends=[whole, pieces], placement="order")[1]) == {
        "gelu": "whole"
    }


def test_where_one_backend_alone_works_on_the_device_there_is_nothing_to_decide() -> None:
    elsewhere = replace(acme(), device="cuda")
    _, heard = compiled(model, X, W, backends=[elsewhere, plain()])
    assert heard[0].plan.claim is None and set(owners(heard).values()) == {"plain"}


def test_backends_are_mixed_only_where_that_is_worth_it() -> None:
    """The products are a little faster on acme, by less than data sheets are right."""
    for flops, mixed in ((1.02e9, False), (1.4e9, False), (2e9, True)):
        torch.compiler.reset()
        products = takes("mm", name="acme", cost=replace(SHEET, flops={torch.float32: flops}))
        _, heard = compiled(model, X, W, backends=[products, plain()])
        (plan,) = (c.plan for c in heard)
        assert ({p.owner.name for p in plan.parts} == {"acme", "plain"}) is mixed
        assert plan.claim is not None and plan.claim.bound <= plan.claim.seconds


@pytest.mark.slow
def test_only_calls_that_gain_more_than_sheets_are_off_are_mixed_in() -> None:
    """Of two operators that are faster on acme, the one that may not be stays where the rest is."""
    seconds = {"aten.mm": 1.0, "aten.relu": 1.0, "aten.sin": 1.0}
    rest = plain(replace(SHEET, seconds=seconds))
    for doubt, gone in ((0.0, {"mm", "sin"}), (0.2, {"mm"}), (0.4, set())):
        torch.compiler.reset()
        some = takes(
            "mm",
            "sin",
            name="acme",
            cost=replace(SHEET, seconds={**seconds, "aten.mm": 0.6, "aten.sin": 0.8}, doubt=doubt),
        )
        _, heard = compiled(model, X, W, backends=[some, rest])
        assert {op for op, owner in owners(heard).items() if owner == "acme"} == gone
        assert heard[0].bills is not None and heard[0].plan.claim is not None
        assert sum(b.seconds for b in heard[0].bills) == pytest.approx(heard[0].plan.claim.seconds)


def test_measured_sheets_replace_the_backends_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(SHEET, flops={torch.float32: 1.0})
    assert owners(compiled(model, X, W, backends=[acme(), plain()], costs={"acme": slow})[1])["mm"] == "plain"
    file = tmp_path / "sheets.json"
    file.write_text(json.dumps({"sheets": {"acme": slow.as_json(), "other": SHEET.as_json()}}))
    assert read_settings(None, {"backends": [acme(), plain()], "costs": file}).backends[0].cost == slow
    monkeypatch.setenv("KEEL_COSTS", str(file))
    assert read_settings(None, {"backends": [acme()]}).backends[0].cost == slow
    with pytest.raises(KeelError, match="Give data sheets by backend name"):
        read_settings(None, {"backends": [acme()], "costs": 3})


def test_a_placement_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeelError, match="no placement 'costs'"):
        keel.compile(model, backends=[plain()], placement="costs")


def test_by_cost_every_backend_needs_a_sheet() -> None:
    with pytest.raises(KeelError, match="plain has no data sheet"):
        keel.compile(model, backends=[acme(), plain(None)], placement="cost")
