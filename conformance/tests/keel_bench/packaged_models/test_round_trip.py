"""Packages of models: what their processes do, and the bars that the figures are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from keel_bench.jobs import Selection
from keel_bench.packaged_models import round_trip
from keel_bench.packaged_models.packaged_call import CALLS, DYNAMIC, STATIC, bits, leaves_of, same, write_calls
from keel_conformance.workers.pool import Outcome

CHOSEN = Selection(models=("resnet18", "bert"), modes=("inference",), backend="cpp")


def row(wrong: list[str], runtime: dict[str, Any] | None, why: str | None = None) -> dict[str, Any]:
    load = {"wrong": wrong, "runtime": why, "call_us": 100.0, "peak_kib": 4000, "load_s": 0.1}
    return {"package": {}, "load": load} | ({} if runtime is None else {"runtime": runtime})


def test_each_model_has_static_and_dynamic_sizes() -> None:
    jobs = round_trip.jobs(CHOSEN)
    assert [(job.model, job.along) for job in jobs] == [(m, s) for m in CHOSEN.models for s in (STATIC, DYNAMIC)]
    assert [job.model for job in round_trip.aoti_jobs(CHOSEN)] == ["resnet18", "bert"]


def test_bars_count_what_came_through_and_name_what_did_not() -> None:
    fast = {"call_us": 60.0, "peak_kib": 1000, "load_s": 0.01, "wrong": []}
    rows = [
        row([], fast),
        row(["call 0, result 1"], None, "It calls eager."),
        row([], {"failure": "run: no"}),
        row([], fast),
    ]
    found = {
        bar.name: bar for bar in round_trip.bars(dict(zip(round_trip.jobs(CHOSEN), map(Outcome, rows), strict=True)))
    }
    assert found["packages, static: models in another process, bit for bit"].value == 2
    assert found["packages, dynamic: models in another process, bit for bit"].note == "resnet18: call 0, result 1"
    assert found["packages, static: models without Python, bit for bit"].note == "bert: run: no"
    assert found["packages, dynamic: models that need Python"].note == "resnet18: It calls eager."
    assert found["packages: time of a call / Python's, median"].value == 0.6
    assert not any(bar.holds for name, bar in found.items() if "bit for bit" in name)


def test_arguments_are_written_for_the_program(tmp_path: Path) -> None:
    call = [torch.tensor([[1, 2], [3, 4]]).t(), None, True, torch.tensor(2.5, dtype=torch.bfloat16), 7]
    write_calls([call, call[:1]], tmp_path)
    lines = (tmp_path / CALLS).read_text().splitlines()
    assert lines == [
        "call",
        "0 64 2 2 2 in_0_0.bin",
        "4 16 0 in_0_3.bin",
        "0 64 0 in_0_4.bin",
        "call",
        "0 64 2 2 2 in_1_0.bin",
    ]
    assert (tmp_path / "in_0_0.bin").read_bytes() == bits(torch.tensor([[1, 3], [2, 4]]))


def test_results_are_the_same_if_all_bits_are() -> None:
    nan, zero = torch.tensor([float("nan"), 0.0]), torch.tensor([float("nan"), -0.0])
    assert same(nan, nan.clone()) and not same(nan, zero) and same(None, None) and not same(1, True)
    assert leaves_of({"a": [1, (None, 2)], "b": 3}) == [1, None, 2, 3]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
def test_a_model_comes_through() -> None:
    (job,) = (job for job in round_trip.jobs(CHOSEN) if (job.model, job.along) == ("resnet18", DYNAMIC))
    figures = round_trip.measure(job)
    assert figures["load"]["wrong"] == [] and figures["package"]["calls"] == 2
    assert figures["runtime"]["wrong"] == [] and figures["runtime"]["call_us"] > 0
