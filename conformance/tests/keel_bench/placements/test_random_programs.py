"""Drawn programs over drawn backends: what is counted as wrong, and that it would be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel import Backend, placement
from keel_bench.jobs import Job, Selection
from keel_bench.placements import random_programs
from keel_bench.worker import environment
from keel_conformance.workers.pool import Outcome

JOB = Job("random", "hash seed 0", "keel", "", "", "tiny", "0-5")


def short(row: dict[str, Any]) -> list[str]:
    return [bar.name for bar in random_programs.bars({JOB: Outcome(row)}) if bar.holds is False]


def test_programs_are_placed_and_run() -> None:
    row = random_programs.measure(JOB)
    assert len(row["plans"]) == 6 and row["again"] == 1 and row["mixed"] >= 3 and row["parts"] < row["calls"]
    assert short(row) == []
    assert random_programs.measure(JOB)["plans"] == row["plans"]


def test_a_backend_that_computes_something_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, **kwargs: Any) -> Backend:
        made = Backend(*args, **{**kwargs, "compile": lambda gm: lambda *x: tuple(y + 1 for y in gm(*x))})
        return made

    monkeypatch.setattr(random_programs, "Backend", wrong)
    assert short(random_programs.measure(JOB)) == ["random: programs whose results are not eager's"]


def test_a_plan_that_costs_more_than_one_backend_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    place = placement.place

    def dear(gm: Any, backends: Any, price: Any) -> placement.Plan:
        good = place(gm, backends, price=price)
        one = tuple(
            placement.Part(f"p{i}", good.backends[-1], (name,))
            for i, name in enumerate(n.name for n in gm.graph.nodes if n.name in good.owner_of)
        )
        return placement.Plan(one, good.backends, good.refusals)

    monkeypatch.setattr(placement, "place", dear)
    assert short(random_programs.measure(JOB)) == [
        "random: plans that do not cost what is said, or more than a backend alone"
    ]


def test_a_plan_that_cannot_run_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    place = placement.place

    def backwards(gm: Any, backends: Any, price: Any) -> placement.Plan:
        good = place(gm, backends, price=price)
        return placement.Plan(good.parts[::-1], good.backends, good.refusals)

    monkeypatch.setattr(placement, "place", backwards)
    assert "random: plans that the certificate refuses" in short(random_programs.measure(JOB))


def test_results_are_compared_bit_by_bit_but_for_nan() -> None:
    x = torch.tensor([1.0, float("nan")])
    assert random_programs._same(x, x.clone())
    for other in (x.double(), x[:1], torch.tensor([1.0, 0.0]), torch.tensor([1.0 + 1e-7, float("nan")])):
        assert not random_programs._same(x, other)


def test_what_is_captured_may_round_otherwise_than_eager_and_parts_not_otherwise_than_it() -> None:
    def times(factor: float) -> Any:
        return make_fx(lambda x: (torch.ops.aten.mul.Tensor(x, factor),))(x)

    x = torch.linspace(1.0, 2.0, 64)
    captured, eager = times(1 / 3), (x / 3,)
    assert not torch.equal(captured(x)[0], eager[0])
    assert random_programs._unlike(captured, eager, eager, [x]) == ""
    assert random_programs._unlike(captured, captured(x), eager, [x]) == "rounded"
    assert random_programs._unlike(captured, times(0.333333)(x), eager, [x]) == "wrong"  # parts are not the graph
    assert random_programs._unlike(times(0.3333), times(0.3333)(x), eager, [x]) == "wrong"  # nor the graph the program


def test_everything_is_placed_under_every_hash_seed(tmp_path: Path) -> None:
    todo = random_programs.jobs(Selection((), (), "cpp"))
    assert len(todo) == 20 and {job.along for job in todo if job.model == "hash seed 1"} == {
        job.along for job in todo if job.model == "hash seed 0"
    }
    assert environment(tmp_path, todo[1], tmp_path)["PYTHONHASHSEED"] == "1"


def test_plans_that_differ_between_processes_fall_short() -> None:
    row = {
        "plans": ["a", "x", "x", "x", "b"],
        "certificate": [],
        "wrong": [],
        "unsteady": [],
        "miscounted": [],
        "rounded": [],
        "again": 0,
        "parts": 2,
        "calls": 4,
        "mixed": 1,
    }
    other = Job("random", "hash seed 1", "keel", "", "", "tiny", "0-5")
    bars = list(random_programs.bars({JOB: Outcome(row), other: Outcome({**row, "plans": ["a", "c"]})}))
    assert [(bar.name, bar.value) for bar in bars if bar.holds is False] == [
        ("random: plans that differ with PYTHONHASHSEED=1", 1)
    ]
