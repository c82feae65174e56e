"""A backend without a data sheet, next to eager PyTorch: it gets whole stretches of a graph, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import keel
from keel import Backend, Call, Cost, KeelError, KeelWarning, Rule, Support
from keel.compiler import DynamoBackend
from keel.cost.assumed import ACCELERATOR, GAIN, assumed_sheets
from keel.events import EventLog, GraphCompiled
from keel.explain_page import page
from keel.placement import itemize
from keel.settings import read_settings

F32 = frozenset({torch.float32})
TOYS = {
    "a few operators": ("aten.add", "aten.mm", "aten.relu", "aten.gelu"),
    "elementwise ones": ("pointwise",),
    "products": ("aten.mm", "aten.addmm", "view"),
    "no product": ("aten.native_layer_norm", "aten.gelu", "aten.add", "view", "aten.clone"),
    "gradients": ("aten.add", "aten.mm", "aten.sum", "aten.mul", "aten.threshold_backward", "view"),
}


@pytest.fixture(autouse=True)
def afresh() -> None:
    torch.compiler.reset()


def toy(*ops: str, **more: Any) -> Backend:
    supports = Support((Rule(ops=ops, dtypes=F32),))
    return Backend(**{"name": "toy", "device": "cpu", "supports": supports, "compile": lambda gm: gm.forward, **more})


def all_but_norms(call: Call) -> str | None:
    return "toy has no layer_norm." if "layer_norm" in call.name else None


NO_NORMS = Backend(name="toy", device="cpu", supports=all_but_norms, compile=lambda gm: gm.forward)


def encoder(width: int) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.0, batch_first=True, activation="gelu")
    return nn.Sequential(layer, nn.Linear(width, width), nn.ReLU())


def placed(fn: Callable[..., Any], *args: torch.Tensor, backends: Sequence[Any], **options: Any) -> list[GraphCompiled]:
    """The graphs of a call and, if it has gradients, of its backward pass; the result is eager's."""
    log = EventLog()
    settings = read_settings(None, {"backends": [*backends], **options})
    got, want = torch.compile(fn, backend=DynamoBackend(settings, log))(*args), fn(*args)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    if got.requires_grad:
        got.sum().backward()
    return list(log.graphs)


def owners(graph: GraphCompiled) -> list[tuple[str, int]]:
    return [(part.owner.name, len(part.nodes)) for part in graph.plan.parts]


def seconds(graph: GraphCompiled, sheet: Cost, *names: str) -> float:
    """What the plan would take if the backends of these names had this sheet."""
    backends = tuple(replace(b, cost=sheet) if b.name in names else b for b in graph.plan.backends)
    by_name = {b.name: b for b in backends}
    parts = tuple(replace(p, owner=by_name[p.owner.name]) for p in graph.plan.parts)
    bills = itemize(graph.gm, replace(graph.plan, backends=backends, parts=parts), graph.constants)
    assert bills is not None
    return sum(bill.seconds for bill in bills)


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("ops", TOYS.values(), ids=TOYS)
def test_no_part_is_one_cheap_call_and_no_plan_can_be_much_slower_than_eager(ops: tuple[str, ...], width: int) -> None:
    x = torch.randn(2, 8, width)
    alone = placed(encoder(width), x, backends=["eager"])
    graphs = placed(encoder(width), x, backends=[toy(*ops), "eager"])
    assert [g.kind for g in graphs] == [g.kind for g in alone] == ["forward", "backward"]
    for graph, eager in zip(graphs, alone, strict=True):
        assert all(count > 1 for name, count in owners(graph) if name == "toy")
        slow = graph.plan.backends[-1].cost
        assert slow is not None
        as_fast_as_eager = seconds(graph, slow, "toy")
        assert as_fast_as_eager <= GAIN * seconds(eager, slow, "eager") * (1 + 1e-6)


def test_a_toy_that_takes_nearly_all_has_nearly_all_and_norms_stay_whole() -> None:
    x = torch.randn(4, 64, 256)
    with torch.no_grad():
        (graph,) = placed(encoder(256), x, backends=[NO_NORMS, "eager"])
    calls = {name: sum(n for who, n in owners(graph) if who == name) for name in ("toy", "eager")}
    assert calls["toy"] > 10 * calls["eager"] > 0
    assert sum("native_layer_norm" in str(node.target) for node in graph.gm.graph.nodes) == 2


@pytest.mark.parametrize("size", [1, 1000])
def test_a_graph_that_it_takes_as_it_is_goes_to_it_however_small(size: int) -> None:
    (graph,) = placed(lambda x, y: (x + y).relu(), *torch.randn(2, size), backends=[toy("pointwise"), "eager"])
    assert owners(graph) == [("toy", 2)]


def small(x: torch.Tensor) -> torch.Tensor:
    return x.sin().relu().cos()


BY_ORDER: dict[str, dict[str, Any]] = {
    "the user asks for it": {"placement": "order"},
    "strict, with eager in the list": {"strict": True},
    "the backend says what it prefers": {"backends": [toy("aten.relu", prefers=lambda call: True), "eager"]},
    "there is another backend": {"backends": [toy("aten.relu"), toy("aten.neg", name="other"), "eager"]},
    "the backend has a data sheet": {"backends": [toy("aten.relu", cost=ACCELERATOR), "eager"]},
    "the last resort has none": {"backends": [toy("aten.relu"), toy("*", name="rest", last_resort=True)]},
    "the operator is pinned": {"pins": {"relu": "toy"}},
}


@pytest.mark.parametrize("options", BY_ORDER.values(), ids=BY_ORDER)
def test_the_order_of_backends_holds_where_it_is_promised(options: dict[str, Any]) -> None:
    (graph,) = placed(small, torch.randn(8), **{"backends": [toy("aten.relu"), "eager"], **options})
    assert [who for who, _ in owners(graph)][1] == "toy"


def test_the_order_of_backends_holds_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keel.selection.missing", lambda extra: ["scipy"])
    (graph,) = placed(small, torch.randn(8), backends=[toy("aten.relu"), "eager"])
    assert [who for who, _ in owners(graph)] == ["eager", "toy", "eager"]


def test_by_cost_a_data_sheet_is_still_required() -> None:
    with pytest.raises(KeelError, match="toy has no data sheet"):
        keel.compile(small, backends=[toy("aten.relu"), "eager"], placement="cost")


def test_the_explanation_says_what_is_assumed_and_what_to_add_next() -> None:
    model, x = encoder(256), torch.randn(4, 64, 256)
    with torch.no_grad():
        explained = keel.explain(model, x, backends=[toy("aten.add", "aten.gelu", "view"), "eager"])
    (graph,) = explained.graphs
    assert graph.assumed == ("toy",) and graph.passed_over["toy"].keys() >= {"aten.add.Tensor", "aten.gelu.default"}
    best = explained.steps[0]
    assert best.operator == "aten.addmm.default" and best.calls == 4
    assert best.saved is not None and best.seconds is not None and 0 < best.saved < best.seconds
    assert best.then > best.calls
    text = " ".join(str(explained).split())
    for sentence in ("toy has no data sheet. It is assumed to be 1.1 times as fast", "toy also takes", "next"):
        assert sentence in text and (sentence == "next" or sentence in page({"model": explained}))


def test_the_rates_that_are_assumed_are_those_of_the_device() -> None:
    eager = keel.testing.find("eager").cost
    assert eager is not None
    for device, rates in (("cpu", eager), ("acme", ACCELERATOR)):
        fast, slow = assumed_sheets(eager, device, fuses=False)
        assert slow.flops == rates.flops and slow.call == slow.launch == fast.launch == rates.call
        assert fast.flops == {dtype: GAIN * rate for dtype, rate in slow.flops.items()}
        assert fast.copies / fast.bandwidth == pytest.approx(slow.copies / slow.bandwidth)


def test_a_backend_that_gets_nothing_is_said_once_with_what_to_do(recwarn: pytest.WarningsRecorder) -> None:
    model, x = nn.Sequential(*[nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)] * 3), torch.randn(4, 8)
    vendor = toy("aten.gelu")
    with torch.no_grad(), pytest.warns(KeelWarning, match="toy gets none of the .* calls that it takes") as warned:
        keel.compile(model, backends=[vendor, "eager"])(x)
    assert len(warned) == 1 and 'placement="order"' in str(warned[0].message)
    torch.compiler.reset()
    with torch.no_grad():
        keel.compile(model, backends=[vendor, "eager"], placement="order")(x)
    assert not recwarn.list


def test_the_only_part_of_a_graph_goes_to_the_backend_that_takes_it() -> None:
    layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))
    with torch.no_grad():
        (graph,) = placed(layers, torch.randn(8, 64), backends=[toy("aten.addmm", "aten.gelu"), "eager"])
    assert ("toy", 2) in owners(graph)
