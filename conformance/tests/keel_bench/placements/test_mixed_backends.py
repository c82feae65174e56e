"""Models on lists of backends, what their parts take, and what falls short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import Backend, Call, Cost
from keel.testing import find, refusal
from keel_bench.jobs import Job, Selection
from keel_bench.placements import cost_sheets, mixed_backends, prediction, timing
from keel_bench.run_time import LOCK
from keel_conformance.workers.pool import Outcome

SHEET = Cost(flops={torch.float32: 1e10}, scalars=1e9, bandwidth=1e10, launch=1e-6)
JOB = Job("never-worse", "bert", "cpp+eager", scale="tiny", rounds=1)
EVERYTHING = Selection(("bert", "vit"), ("inference", "training"), "cpp")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LOCK, str(tmp_path / "lock"))
    monkeypatch.setenv(cost_sheets.SHEETS, str(tmp_path / "sheets.json"))
    monkeypatch.setattr(timing, "STEPS", 1)
    monkeypatch.setattr(timing, "WARM_UP", 1)
    monkeypatch.setattr(timing.os, "sched_setaffinity", lambda *a: None)


def test_parts_are_predicted_and_timed() -> None:
    eager, cpp = find("eager"), find("cpp")
    nothing = Backend(
        name="none", device="*", supports=lambda call: "Nothing is taken.", compile=lambda gm: gm.forward, cost=SHEET
    )
    rows = timing.timed(JOB, {"cpp": [cpp], "both": [prediction.withheld(cpp, "0"), eager], "none": [nothing]})
    assert rows["none"]["seconds"] is None and "no-owner" in rows["none"]["why"]
    (alone,), parts = rows["cpp"]["parts"], rows["both"]["parts"]
    assert alone["owner"] == "cpp" and rows["both"]["owners"] == ["cpp", "eager"] and len(parts) > 2
    for row in (rows["cpp"], rows["both"]):
        assert 0 < sum(part["seconds"] for part in row["parts"]) <= 1.5 * row["seconds"]
        assert len(row["steps"]) == JOB.rounds
        assert 0 < row["predicted"] == pytest.approx(sum(part["predicted"] for part in row["parts"]))
    json.dumps(rows, allow_nan=False)


def test_withheld_operators_are_refused_by_lot() -> None:
    eager = find("eager")
    said: list[bool] = []

    def listen(call: Call) -> str | None:
        said.extend(refusal(prediction.withheld(eager, str(seed)), call) is None for seed in range(40))
        return None

    it = Backend(name="it", device="*", supports=listen, compile=lambda gm: gm.forward, cost=SHEET)
    timing.timed(JOB, {"it": [it]})
    assert 0.6 < sum(said) / len(said) < 0.8


def test_sheets_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(backends: list[Backend], device: str) -> dict[str, Cost]:
        asked.extend(b.name for b in backends)
        return {b.name: SHEET for b in backends}

    monkeypatch.setattr(cost_sheets, "calibrate", measured)
    assert [b.cost for b in cost_sheets.backends(["eager"], "cpu")] == [SHEET]
    assert [b.name for b in cost_sheets.backends(["interp", "eager"], "cpu")] == ["interp", "eager"]
    assert asked == ["eager", "interp"]


def row(**seconds: tuple[float, float]) -> dict[str, Any]:
    """Predicted and measured seconds by backend, and of the whole list, which has a part on each."""

    def of(name: str, times: tuple[float, float]) -> dict[str, Any]:
        owners = [n for n in seconds if n != "together"] if name == "together" else [name]
        return {
            "predicted": times[0],
            "seconds": times[1],
            "steps": [times[1]] * 3,
            "why": "",
            "owners": owners,
            "parts": [{"owner": owner, "calls": 3, "predicted": times[0], "seconds": times[1]} for owner in owners],
        }

    return {name: of(name, times) for name, times in seconds.items()}


def held(bars: Any, figures: dict[str, Any]) -> list[bool | None]:
    return [bar.holds for bar in bars({JOB: Outcome(figures)})]


def test_a_placement_that_is_slower_than_one_backend_falls_short() -> None:
    good = row(a=(2.0, 3.0), b=(3.0, 2.0), together=(1.0, 2.02))
    assert held(mixed_backends.never_worse_bars, good) == [True, True]
    assert held(mixed_backends.never_worse_bars, row(a=(2.0, 3.0), b=(3.0, 2.0), together=(2.1, 2.1))) == [False, False]
    cannot = {**good, "b": {**good["b"], "why": "It cannot.", "seconds": None, "steps": []}}
    slower = {**cannot, "together": {**good["together"], "seconds": 3.05, "steps": [3.05] * 3}}
    assert held(mixed_backends.never_worse_bars, slower) == [True, True]
    assert held(mixed_backends.never_worse_bars, {**good, "together": {**good["together"], "why": "It cannot."}}) == [
        False
    ]


def test_a_placement_on_one_backend_is_that_backend() -> None:
    same = row(a=(2.0, 2.0), together=(2.0, 2.2))
    assert held(mixed_backends.never_worse_bars, same) == [True, True]
    same["together"]["parts"] *= 2  # as two parts it is another program
    assert held(mixed_backends.never_worse_bars, same) == [True, False]


def test_what_is_predicted_is_the_placement_by_cost_and_what_is_measured_what_was_kept() -> None:
    tried = row(a=(2.0, 3.0), b=(3.0, 2.0), together=(3.0, 2.0))
    by_cost = row(a=(2.0, 3.0), b=(3.0, 2.0), together=(1.9, 2.2))["together"]
    predicted, measured = mixed_backends.never_worse_bars({JOB: Outcome({**tried, mixed_backends.BY_COST: by_cost})})
    assert predicted.value == pytest.approx(0.95) and predicted.holds and measured.value == 1.0 and measured.holds
    assert "by cost 1.9e+03 ms" in predicted.note and "measured 2.2e+03 ms, 1.1 times b's" in predicted.note
    assert "together 2e+03 ms" in measured.note


def test_lists_are_placed_by_cost_or_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = timing.keel.compile
    monkeypatch.setattr(
        timing.keel, "compile", lambda fn, **options: asked.append(options["placement"]) or real(fn, **options)
    )
    monkeypatch.setattr(mixed_backends, "backends", lambda names, device: [find(name) for name in names])
    found = mixed_backends.measure_tried(JOB)
    assert list(found) == ["cpp", "eager", mixed_backends.BY_COST, mixed_backends.TOGETHER]
    assert asked == ["cost", "cost", "cost", "measured"]
    assert not any(each["why"] for each in found.values())
    assert len(found[mixed_backends.TOGETHER]["parts"]) >= 1  # of the kept plan alone: others run no more


def test_steps_run_until_one_plan_is_left() -> None:
    """Of three plans whose turns go there and back, none has as many in a row as are waited for."""
    plans = [[timing.PartTime("a", 1, 1.0)], [timing.PartTime("a", 1, 1.0)], [timing.PartTime("b", 1, 1.0)]]
    turns = iter([*(0, 1, 2), *(0, 1, 2, 2, 1, 0) * 2, *(0, 2, 2, 0) * 2, *(2,) * 99])
    found, steps = timing.Timed(), list[int]()

    def step() -> None:
        steps.append(next(turns))
        found.ran += plans[steps[-1]]

    timing.settle(step, found, timing.STILL)
    assert steps[-timing.STILL :] == [2] * timing.STILL and len(steps) == 23 + timing.STILL


def test_lists_are_compared_round_by_round() -> None:
    """A busy moment slows a round of all of them."""
    busy = row(a=(2.0, 2.0), b=(3.0, 3.0), together=(1.0, 1.0))
    for name, steps in (("a", [2.0, 20.0, 2.0]), ("b", [3.0, 30.0, 3.0]), ("together", [2.2, 19.0, 2.0])):
        busy[name] |= {"steps": steps, "seconds": sorted(steps)[1]}
    (_, measured) = mixed_backends.never_worse_bars({JOB: Outcome(busy)})
    assert measured.value == 1.0 and measured.holds and measured.note.startswith("a alone 2")


def test_a_mixture_is_the_fastest_or_has_a_reason() -> None:
    for figures, holds, reason in (
        (row(a=(2.0, 3.0), b=(3.0, 2.0), together=(1.0, 1.9)), True, ""),
        (row(a=(2.0, 3.0), b=(3.0, 2.0), together=(1.0, 2.1)), False, ""),
        (row(a=(2.0, 3.0), b=(3.0, 2.0), together=(2.9, 2.1)), True, "is predicted to gain 3.3 %"),
        (row(a=(2.0, 2.0), together=(2.0, 2.1)), True, "no mixture is predicted to be faster than a alone"),
    ):
        (bar,) = mixed_backends.mixture_bars({JOB: Outcome(figures)})
        assert bar.holds is holds and reason in bar.note


def test_a_backend_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_sheets, "find_spec", lambda name: None)
    job = Job("mixtures", "bert", "cpp+openvino+eager", scale="tiny")
    (bar,) = mixed_backends.mixture_bars({job: Outcome(mixed_backends.measure(job))})
    assert not bar.holds and bar.note == "openvino is not installed: pip install openvino."


def test_ranks_are_held_to_nine_tenths() -> None:
    good = {
        "x": {
            "why": "",
            "parts": [
                {"owner": "a", "predicted": p, "seconds": s}
                for p, s in ((1.0, 2.0), (2.0, 3.0), (3.0, 10.0), (4.0, 11.0))
            ],
        }
    }
    job = Job("prediction", "bert", "cpp+eager")
    assert [bar.holds for bar in prediction.bars({job: Outcome(good)})] == [True, None]
    good["x"]["parts"][0]["seconds"] = 20.0
    assert [bar.holds for bar in prediction.bars({job: Outcome(good)})] == [False, None]


def test_models_and_modes_are_asked_for() -> None:
    assert [(j.model, j.mode) for j in mixed_backends.never_worse_jobs(EVERYTHING)] == [
        ("bert", "inference"),
        ("bert", "training"),
        ("vit", "inference"),
        ("vit", "training"),
    ]
    assert [(j.model, j.compiler) for j in mixed_backends.mixture_jobs(EVERYTHING)] == [
        ("bert", "cpp+inductor+eager"),
        ("bert", "cpp+openvino+eager"),
    ]
    assert len(prediction.jobs(EVERYTHING)) == 4
