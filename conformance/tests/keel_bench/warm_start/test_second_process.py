"""A warm start is compared with ``aot_eager`` and Inductor, and faults are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keel_bench.jobs import Job, Selection
from keel_bench.suites import programs_of_warm_start
from keel_bench.warm_start import second_process
from keel_bench.warm_start.second_process import BERT, BESIDE_INDUCTOR, bars, bert_bars, environment, steps
from keel_bench.warm_start.slow_plugin import mlp
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

JOB = Job("warm-zoo", "bert", "cpp")
LOADED = {"graph": "inference", "result": "loaded", "seconds": {"capture": 9.0, "key": 0.01, "load": 0.03}, "why": ""}
COMPILED = {"graph": "inference", "result": "compiled", "seconds": {"capture": 9.0, "place": 0.75}, "why": ""}


def process(seconds: float, *graphs: Any) -> dict[str, Any]:
    return {"seconds": seconds, "cpu": seconds, "graphs": list(graphs)}


def row(aot_eager: float, warm: float, *graphs: Any, different: tuple[str, ...] = ()) -> Outcome:
    cold = process(9.0, COMPILED)
    own = process(warm, *(graphs or (LOADED,)))
    return Outcome({"aot_eager": process(aot_eager), "cold": cold, "warm": own, "different": list(different)})


def named(results: dict[Job, Outcome], words: str) -> Criterion:
    (found,) = (bar for bar in bars(results) if words in bar.name)
    return found


@pytest.mark.parametrize(("warm", "holds"), [(1.09, True), (1.11, False)])
def test_a_warm_start_may_take_a_tenth_more_than_aot_eager(warm: float, holds: bool) -> None:
    bar = named({JOB: row(1.0, warm)}, "total CPU s / aot_eager's")
    assert bar.holds is holds and bar.value == pytest.approx(warm)
    assert "warm 1." in (note := named({JOB: row(1.0, warm)}, "bert inference").note)
    assert "(0.040 s Keel's own)" in note and "cold 9.00 s (0.750 s" in note


@pytest.mark.parametrize(("inductor", "holds"), [(2.1, True), (1.9, False)])
def test_a_warm_start_may_take_half_of_inductors(inductor: float, holds: bool) -> None:
    other = Outcome({"cold": process(60.0), "warm": process(inductor), "different": []})
    results = {JOB: row(1.0, 1.0), Job("warm-zoo", "bert", "inductor"): other}
    assert named(results, "total CPU s / Inductor's warm start").holds is holds
    assert not [bar for bar in bars({JOB: row(1.0, 1.0)}) if "Inductor" in bar.name]


def test_faults_are_named() -> None:
    why = {"graph": "inference", "result": "not kept in the cache", "seconds": {}, "why": "It is odd."}
    results = {JOB: row(1.0, 1.0, why, COMPILED, different=("output",))}
    differs, compiled = named(results, "differ in a bit"), named(results, "compiled again")
    assert (differs.holds, differs.note) == (False, "bert inference: output")
    assert (compiled.holds, compiled.note) == (False, "bert inference: inference graph: It is odd.")
    assert named({JOB: row(1.0, 1.0)}, "compiled again").note == "1 graphs were loaded"
    (first, *_) = bars({JOB: Outcome(None, "The process warm failed.")})
    assert (first.holds, first.note) == (False, "The process warm failed.")


def test_keels_own_seconds_of_bert_have_a_bar() -> None:
    job = Job("warm-bert", BERT, "cpp")
    assert [bar.holds for bar in bert_bars({job: row(1.0, 1.0)})] == [True, True, True, True]
    slow = LOADED | {"seconds": {"load": 0.2}}
    assert [bar.holds for bar in bert_bars({job: row(1.0, 1.0, slow)})] == [True, False, True, True]
    assert not list(bert_bars({})) and not list(bars({}))


def test_processes_of_a_job_share_caches_that_no_other_job_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_DUMP", "here")
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "0")
    names = [step.name for step in steps(JOB, mlp)]
    assert names == ["aot_eager", "cold", "warm"]
    assert [step.name for step in steps(Job("warm-zoo", "bert", "inductor"), mlp)] == ["cold", "warm"]
    own = environment(tmp_path, steps(JOB, mlp)[0], tmp_path / "folder")
    assert own["KEEL_CACHE_DIR"] == str(tmp_path / "keel") and own["KEEL_GRAPH_CACHE"] == "1" and "KEEL_DUMP" not in own


def test_every_model_is_measured_and_some_beside_inductor() -> None:
    chosen = Selection(programs_of_warm_start(), ("inference",), "cpp")
    jobs = second_process.jobs(chosen)
    assert {job.model for job in jobs if job.compiler == "inductor"} == {*BESIDE_INDUCTOR}
    assert len([job for job in jobs if job.compiler == "cpp"]) == len(chosen.models) - 1
    assert [job.model for job in second_process.bert_jobs(chosen)] == [BERT]
