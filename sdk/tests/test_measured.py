"""Graphs whose plans are tried in their first calls, from the options to what runs, by a clock that backends move."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import keel
from keel import Backend, Cost, KeelError
from keel.compiler import DynamoBackend
from keel.events import (
    AutotuneSkipped,
    AutotuneStarted,
    Event,
    EventLog,
    GraphCompiled,
    GraphState,
    PartsBuilt,
    PlanSelected,
    StageStarted,
)
from keel.explain_page import page
from keel.runtime import autotune
from keel.runtime.part_progress import PartsCompiled
from keel.settings import MODES, read_settings

from .line import takes, whole

SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10)
X, W = torch.randn(64, 64), torch.randn(64, 64)


@dataclass
class Clock:
    now: float = 0.0
    calls: list[str] = field(default_factory=list)

    def taking(self, name: str, seconds: float, predicted: float = 1.0, *ops: str) -> Backend:
        """Takes everything, or ``ops``; its parts take ``seconds`` a call, and are predicted to be ``predicted`` times
        as slow as others' are.
        """

        def compile(gm: fx.GraphModule) -> Callable[..., Any]:
            count = sum(node.op == "call_function" for node in gm.graph.nodes)

            def run(*args: Any) -> Any:
                self.calls.append(name)
                self.now += seconds * count
                return gm(*args)

            return run

        sheet = replace(SHEET, flops={torch.float32: 1e9 / predicted}, scalars=1e9 / predicted, doubt=0.0)
        more: dict[str, Any] = {"compile": compile, "cost": sheet}
        return replace(takes(*ops, name=name), **more) if ops else replace(whole(name), **more)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(autotune, "perf_counter", lambda: found.now)
    return found


def model(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).relu() @ w).sin()


def measured(fn: Callable[..., Any], backends: list[Backend], **more: Any) -> tuple[Callable[..., Any], list[Event]]:
    heard: list[Event] = []
    settings = read_settings(None, {"backends": backends, "placement": "measured", "strict": True} | more)

    def listen(event: Event) -> None:
        if not isinstance(event, StageStarted | PartsBuilt | PartsCompiled):
            heard.append(event)

    return torch.compile(fn, backend=DynamoBackend(settings, listen)), heard


def agreeing(run: Callable[..., Any]) -> Callable[[], None]:
    return lambda: torch.testing.assert_close(run(X, W), model(X, W))


def settle(run: Callable[[], Any], heard: list[Event]) -> list[GraphState]:
    """Calls until all plans are selected; the state of each graph then."""
    for _ in range(3 * autotune.LONGEST):
        run()
        log = EventLog()
        for event in heard:
            log(event)
        if not log.is_timing:
            return list(log.states)
    pytest.fail("undecided")


def owners(state: GraphState | PlanSelected | AutotuneSkipped) -> set[str]:
    return {part.owner.name for part in state.graph.plan.parts}


def said(state: GraphState) -> list[tuple[str, bool, str]]:
    return [("+".join(t.owners), t.kept, t.why) for t in state.timings]


def test_who_is_fastest_is_kept_whatever_is_predicted(clock: Clock) -> None:
    run, heard = measured(model, [clock.taking("a", 2.0), clock.taking("b", 1.0, 1.2)])
    (found,) = settle(agreeing(run), heard)
    compiled, started, selected = heard
    assert isinstance(compiled, GraphCompiled) and {part.owner.name for part in compiled.plan.parts} == {"a"}
    assert isinstance(started, AutotuneStarted) and started.graph is compiled
    assert isinstance(selected, PlanSelected) and (selected.graph, selected.timings) == (found.graph, found.timings)
    assert owners(found) == {"b"} and said(found) == [("a", False, ""), ("b", True, "")]
    claim = found.graph.plan.claim
    assert claim is not None and found.timings[1].predicted == claim.seconds
    clock.calls.clear()
    torch.testing.assert_close(run(X, W), model(X, W))
    assert clock.calls == ["b"]


@pytest.mark.slow
def test_what_was_not_kept_is_let_go(clock: Clock) -> None:
    class Part:
        def __init__(self, run: Callable[..., Any], name: str) -> None:
            self.run, self.constants = run, torch.ones(8)
            alive[name] = weakref.ref(self)

        def __call__(self, *args: Any) -> Any:
            return self.run(*args)

    alive: dict[str, weakref.ref[Part]] = {}

    def holding(backend: Backend) -> Backend:
        return replace(backend, compile=lambda gm: Part(backend.compile(gm), backend.name))

    run, heard = measured(model, [holding(clock.taking("a", 2.0)), holding(clock.taking("b", 1.0))])
    settle(lambda: run(X, W), heard)
    heard.clear()
    gc.collect()
    assert {name: ref() is not None for name, ref in alive.items()} == {"a": False, "b": True}


@pytest.mark.slow
def test_a_mixture_that_is_slower_than_one_backend_alone_is_not_kept(clock: Clock) -> None:
    for seconds, kept in ((0.1, {"products", "rest"}), (9.0, {"rest"})):
        torch.compiler.reset()
        run, heard = measured(model, [clock.taking("products", seconds, 0.7, "mm"), clock.taking("rest", 1.0)])
        (found,) = settle(agreeing(run), heard)
        assert owners(found) == kept and [name for name, *_ in said(found)] == ["products+rest", "rest"]


def test_the_hopeless_are_not_compiled(clock: Clock) -> None:
    never = replace(clock.taking("c", 0.1, 2.0), compile=lambda gm: pytest.fail("compiled"))
    run, heard = measured(model, [clock.taking("a", 2.0), clock.taking("b", 1.0, 1.2), never])
    (found,) = settle(lambda: run(X, W), heard)
    assert [name for name, *_ in said(found)] == ["a", "b"]


@pytest.mark.slow
def test_forward_and_backward_are_decided_apart(clock: Clock) -> None:
    def graphs(name: str, forward: float, backward: float) -> Backend:
        def compile(gm: fx.GraphModule) -> Callable[..., Any]:
            seconds = backward if any("threshold" in str(n.target) for n in gm.graph.nodes) else forward

            def run(*args: Any) -> Any:
                clock.now += seconds
                return gm(*args)

            return run

        return replace(clock.taking(name, 0.0), compile=compile)

    layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    run, heard = measured(layer, [graphs("a", 2.0, 1.0), graphs("b", 1.0, 2.0)])

    def step() -> None:
        found = torch.autograd.grad(run(X).sum(), list(layer.parameters()))
        for grad, wanted in zip(found, torch.autograd.grad(layer(X).sum(), list(layer.parameters())), strict=True):
            torch.testing.assert_close(grad, wanted)

    assert [(c.graph.kind, owners(c)) for c in settle(step, heard)] == [("forward", {"b"}), ("backward", {"a"})]


@pytest.mark.slow
def test_buffers_are_written_once(clock: Clock) -> None:
    norm = nn.BatchNorm1d(8)
    run, heard = measured(norm, [clock.taking("a", 2.0), clock.taking("b", 1.0)])
    calls: list[Tensor] = []
    (found,) = settle(lambda: calls.append(run(torch.randn(4, 8))), heard)
    assert len(found.timings) == 2 and int(norm.num_batches_tracked or 0) == len(calls) > 2


def test_a_graph_that_draws_is_not_tried(clock: Clock) -> None:
    run, heard = measured(lambda x: torch.rand_like(x) + x, [clock.taking("a", 2.0), clock.taking("b", 1.0)])
    run(X)
    _, skipped = heard
    assert isinstance(skipped, AutotuneSkipped) and owners(skipped) == {"a"} and clock.calls == ["a"]
    assert "may run only once" in skipped.reason and "draws random numbers" in skipped.reason


def test_nobody_to_try_is_said(clock: Clock) -> None:
    run, heard = measured(model, [clock.taking("a", 2.0)])
    run(X, W)
    _, skipped = heard
    assert isinstance(skipped, AutotuneSkipped) and "No single backend takes the whole graph" in skipped.reason


@pytest.mark.slow
def test_a_rival_that_does_not_compile_or_run_is_out(clock: Clock) -> None:
    def fails(*args: Any) -> Any:
        raise ValueError("no room\nfor this")

    for compile, why in ((fails, "b: ValueError: no room"), (lambda gm: fails, "ValueError: no room")):
        torch.compiler.reset()
        run, heard = measured(model, [clock.taking("a", 2.0), replace(clock.taking("b", 1.0), compile=compile)])
        (found,) = settle(agreeing(run), heard)
        assert [(name, kept) for name, kept, _ in said(found)] == [("a", True), ("b", False)]
        assert found.timings[1].why.endswith(why)


def test_a_rival_of_wrong_results_is_out(clock: Clock) -> None:
    wrong = replace(clock.taking("b", 1.0), compile=lambda gm: lambda *args: [t.double() for t in gm(*args)])
    run, heard = measured(model, [clock.taking("a", 2.0), wrong])
    (found,) = settle(agreeing(run), heard)
    assert owners(found) == {"a"} and "broke the contract" in found.timings[1].why


@pytest.mark.slow
def test_sizes_that_change_are_compared_call_by_call(clock: Clock) -> None:
    run, heard = measured(model, [clock.taking("a", 2.0), clock.taking("b", 1.0, 1.2)])
    rows = cycle((64, 32, 16, 48))

    def call() -> None:
        x = torch.ones(next(rows), 64)
        torch.testing.assert_close(run(x, W), model(x, W))

    for _ in range(2 * autotune.LONGEST):  # of the graph for any number; that for 64 rows is left
        call()
    started = [event for event in heard if isinstance(event, AutotuneStarted)]
    (selected,) = (event for event in heard if isinstance(event, PlanSelected))
    assert len(started) == 2 and owners(selected) == {"b"}


def test_by_measuring_every_backend_needs_a_sheet() -> None:
    with pytest.raises(KeelError, match="whole has no data sheet"):
        keel.compile(model, backends=[whole()], placement="measured")


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_measures_what_has_sheets(clock: Clock, mode: str) -> None:
    backends = [clock.taking("a", 2.0), clock.taking("b", 1.0)]
    settings = read_settings(None, {"backends": backends, "mode": mode})
    assert settings.placement == ("measured" if mode.startswith("max-autotune") else "auto")
    assert settings.replays_graphs == (mode in ("reduce-overhead", "max-autotune"))
    assert read_settings(mode, {"backends": backends}) == settings
    assert read_settings(mode, {"backends": backends, "placement": "order"}).placement == "order"
    assert read_settings(mode, {"backends": [whole()]}).placement == "auto"
    with pytest.raises(KeelError, match="There is no mode ''"):
        read_settings("", {"backends": backends, "mode": mode})


@pytest.mark.slow
def test_what_was_tried_is_explained_and_written(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    backends = [clock.taking("a", 2.0), clock.taking("b", 1.0, 1.2)]
    found = keel.explain(model, X, W, backends=backends, strict=True, placement="measured")
    assert found.taken == {"a": 0, "b": 4}
    (line,) = (line for line in str(found).splitlines() if line.endswith("kept"))
    assert line.split()[0] == "b" and "4 s" in line and "8 s" in str(found)
    assert "kept" in page({"model": found})
    (dumped,) = tmp_path.iterdir()
    data = json.loads((dumped / "07-autotuned.json").read_text())
    assert [t["kept"] for t in data["tried"]] == [False, True] and data["kept"]["parts"][0]["owner"] == "b"
    assert (dumped / "alone-b" / "02-legalized.fx").exists()
    drawn = keel.explain(lambda x: torch.rand_like(x), X, backends=backends, strict=True, placement="measured")
    assert "Nothing was tried. The graph may run only once" in str(drawn) and "Nothing was tried" in page({"m": drawn})


def test_what_is_supposed_is_not_tried(clock: Clock) -> None:
    found = keel.explain(
        model,
        X,
        W,
        backends=[clock.taking("a", 2.0), clock.taking("b", 1.0)],
        strict=True,
        placement="measured",
        without=["a.sin"],
    )
    assert not found.graphs[0].tried and not found.graphs[0].untried


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU.")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # PyTorch records one to start its pool
def test_graphs_are_recorded_once_they_are_decided(clock: Clock) -> None:
    layer = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).cuda()
    twin = copy.deepcopy(layer)
    run = keel.compile(
        layer,
        backends=[clock.taking("a", 2.0), clock.taking("b", 1.0, 1.2)],
        strict=True,
        placement="measured",
        mode="reduce-overhead",
    )
    for _ in range(4 * autotune.ROUNDS):
        x = torch.randn(4, 8, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        got, want = run(x), twin(x)
        torch.testing.assert_close(got, want)
        for made, y in ((layer, got), (twin, want)):
            made.zero_grad()
            y.square().sum().backward()
        torch.testing.assert_close(layer[0].weight.grad, twin[0].weight.grad)
    # Each graph runs once to warm up and in every round by either, a few times to be recorded, and is replayed then.
    assert clock.calls.count("a") == 2 * (1 + autotune.ROUNDS) and clock.calls.count("b") <= 2 * (4 + autotune.ROUNDS)
