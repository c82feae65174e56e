"""Ratios are of rounds, a failure counts as 1 and is listed, and each bar takes its own jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from keel_bench.jobs import Job
from keel_bench.speed.speed_bars import BARS, Bar, Ratio, bars, ratio
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome


def row(keel: list[float], inductor: list[float], **others: Any) -> dict[str, Any]:
    memory = {"peak_mib": 100.0, "cpu_s": 4.0, "first_s": 2.0}
    return {"contenders": {"keel": {"rounds": keel, **memory}, "inductor": {"rounds": inductor, **memory}, **others}}


def job(mode: str = "inference", precision: str = "fp32", part: str = "speed-cpu", model: str = "m") -> Job:
    return Job(part, model, "cpp", mode, precision, batch=8)


def by_name(part: str, results: Mapping[Job, Outcome]) -> dict[str, Criterion]:
    return {bar.name.removeprefix(f"{part}: "): bar for bar in bars(part, results)}


MEAN = "geometric mean of the ratios to Inductor"


def test_a_speed_is_the_median_of_rounds_with_its_quartiles() -> None:
    assert ratio(row([1.0, 2.0, 1.0], [1.5, 2.0, 2.0])) == Ratio(1.5, 1.25, 1.75)
    assert ratio(row([2.0], [3.0])) == Ratio(1.5, 1.5, 1.5)


def test_other_figures_are_keels_over_inductors() -> None:
    figures = row([1.0], [1.0], **{"inductor-best": {"rounds": [1.0], "peak_mib": 50.0}})
    assert ratio(figures, "peak memory").value == 1.0
    assert ratio(figures, "peak memory", best=True).value == 2.0  # Keel's default mode is its best here


def test_a_failure_counts_as_one_and_is_listed() -> None:
    failing = row([1.0], [2.0])
    failing["contenders"]["keel"] = {"failure": "It raised."}
    results = {
        job(): Outcome(row([1.0, 1.0], [4.0, 4.0])),
        job(model="n"): Outcome(failing),
        job(model="o"): Outcome(None, "It died."),
    }
    named = by_name("speed-cpu", results)
    speed = named[f"speed, inference, fp32: {MEAN}"]
    assert speed.value == pytest.approx(4.0 ** (1 / 3)) and speed.holds and "2 failed" in speed.note
    failures = named["failures of keel"]
    assert failures.value == 2 and failures.holds is False
    assert "It raised." in failures.note and "It died." in failures.note


def test_the_slowest_job_is_named() -> None:
    results = {job(): Outcome(row([1.0], [2.0])), job(model="slow"): Outcome(row([1.0], [0.9]))}
    slowest = by_name("speed-cpu", results)["speed, inference, fp32: slowest"]
    assert (slowest.value, slowest.holds) == (0.9, False) and "slow" in slowest.note


def test_bars_take_their_own_jobs() -> None:
    assert list(bars("speed-gpu", {})) == []
    only_training = by_name("speed-cpu", {job("training", "bf16"): Outcome(row([1.0], [1.2]))})
    assert f"speed, training: {MEAN}" in only_training and f"speed, inference, bf16: {MEAN}" not in only_training
    assert only_training[f"compilation, CPU s, all jobs: {MEAN}"].holds is False  # as long as Inductor's
    assert only_training["models"].holds is False


def test_titles_say_which_jobs_a_bar_takes() -> None:
    titles = {part: [bar.title for bar in of_part] for part, of_part in BARS.items()}
    assert titles["speed-gpu"][2:4] == ["best modes", "inference, batch 1, best modes"]
    assert Bar(1.0, batch=1).chooses(job()) is False and Bar(1.0).chooses(job())
