"""Keel is held against eager PyTorch's errors and Inductor's collectives, and on GPUs against their times."""

from __future__ import annotations

from typing import Any

import pytest

from keel_bench.distributed.distributed_bars import bars
from keel_bench.distributed.distributed_page import page
from keel_bench.jobs import Job
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

JOB = Job("distributed", "fsdp2", "keel", "training", "bf16")
ORDER = ["all_gather", "backward", "reduce_scatter"]


def rank(ms: float = 10.0, **other: Any) -> dict[str, Any]:
    common = {"first_s": 1.0, "ms": ms, "peak_mib": None, "loss_error": 1e-5, "parameter_errors": [0.01, 0.02]}
    return common | {"order": ORDER, "waits": 1, "reads": 4, "synchronizations": None, "hidden": None} | other


def on_gpu(ms: float, **other: Any) -> dict[str, Any]:
    return rank(ms, **{"peak_mib": 100.0, "synchronizations": 1, "hidden": 0.5} | other)


def row(**ranks: Any) -> dict[str, Any]:
    return {"processes": 1, "gpus": [], "compilers": {name: {"ranks": [figures]} for name, figures in ranks.items()}}


def results(**ranks: Any) -> dict[str, Criterion]:
    return {bar.name.partition(": ")[2]: bar for bar in bars({JOB: Outcome(row(**ranks))})}


def test_all_holds_where_keel_does_as_others() -> None:
    found = results(eager=rank(), inductor=rank(), keel=rank(20.0))
    assert {name: bar.holds for name, bar in found.items()} == {
        "error of losses / eager's": True,
        "error of parameters / eager's": True,
        "error of the worst parameter / eager's": True,
        "numbers read by the host in a step": True,
        "ranks whose collectives are other than Inductor's": True,
        "time / Inductor's": None,
    }
    assert found["ranks whose collectives are other than Inductor's"].note.startswith("2 collectives and 1 backward")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("error of losses / eager's", {"loss_error": 3e-5}),
        ("error of parameters / eager's", {"parameter_errors": [0.03, 0.05]}),
        ("error of the worst parameter / eager's", {"parameter_errors": [0.041, 0.01]}),
        ("numbers read by the host in a step", {"reads": 5}),
        ("ranks whose collectives are other than Inductor's", {"order": ["all_gather", "reduce_scatter", "backward"]}),
        ("ranks whose collectives are other than Inductor's", {"order": ORDER[:2]}),
    ],
)
def test_faults_are_seen(name: str, fault: Any) -> None:
    found = results(eager=rank(), inductor=rank(), keel=rank(**fault))
    assert [other for other, bar in found.items() if bar.holds is False] == [name]


@pytest.mark.parametrize(
    ("name", "keel"),
    [
        ("speed / eager's", on_gpu(16.0)),
        ("time / Inductor's", on_gpu(15.0)),
        ("peak memory / Inductor's", on_gpu(10.0, peak_mib=103.0)),
        ("synchronizations in a step", on_gpu(10.0, synchronizations=2)),
        ("synchronizations in a step", on_gpu(10.0, synchronizations=None)),
    ],
)
def test_gpus_have_more_bars(name: str, keel: Any) -> None:
    right = {"eager": on_gpu(20.0), "inductor": on_gpu(14.0)}
    assert all(bar.holds is not False for bar in results(**right, keel=on_gpu(14.0)).values())
    assert results(**right, keel=keel)[name].holds is False


def test_a_failure_is_named_and_what_is_left_out_too() -> None:
    compilers = {**row(eager=rank(), keel=rank())["compilers"], "inductor": {"failure": "Rank 1 of 2 failed."}}
    (failure, *others) = bars({JOB: Outcome({"compilers": compilers})})
    assert (failure.name, failure.holds) == ("fsdp2 on cpu: inductor", False) and failure.note == "Rank 1 of 2 failed."
    assert all(bar.holds for bar in others)
    (bar,) = bars({JOB: Outcome({"left_out": "It takes 4 GPUs."})})
    assert bar.holds is None and "4 GPUs" in bar.note
    (bar,) = bars({JOB: Outcome(None, "It died.")})
    assert bar.holds is False and bar.note == "It died."


def test_the_page_has_a_line_for_each_compiler() -> None:
    measured = {**row(eager=rank(), inductor=rank(), keel=rank(5.0)), "model": "fsdp2"}
    machine = {"cpu": "A processor", "cores": 2, "torch": "2.13.0"}
    left_out = {"model": "fsdp2-tp", "left_out": "It takes 4 GPUs, and there are 2."}
    record = {"machine": machine, "made": "2026-01-02T03:04:05", "rows": [measured, left_out], "bars": []}
    text = page([record])
    assert "| fsdp2, 1 processes | keel | 1.0 | 5.0 | 2.00 | - | 1.0e-05 | 0.020 | 2 | 1 | 1 | 4 | - | - |" in text
    assert "| fsdp2-tp | It takes 4 GPUs, and there are 2. |" in text and "A processor, 2 cores" in text
