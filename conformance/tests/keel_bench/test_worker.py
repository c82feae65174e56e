"""A job of the bench runs in a fresh process, and one that raises or hangs has a row that says so."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from keel_bench.jobs import Job
from keel_bench.suites import bars
from keel_bench.worker import environment, work
from keel_conformance.workers.pool import Outcome, run_all
from keel_conformance.workers.spawn import fresh


def run(job: Job, caches: Path, time_limit: float = 600.0) -> Outcome:
    ((_, outcome),) = run_all([job], fresh(work, partial(environment, caches)), time_limit=time_limit)
    return outcome


def test_a_job_runs_in_its_own_process(tmp_path: Path) -> None:
    job = Job("accuracy", "bert", "eager", "training", scale="tiny", rounds=1)
    outcome = run(job, tmp_path)
    assert outcome.failure == ""
    assert outcome.row["worst"] <= 1  # eager against itself; below 1 only by the floor
    assert outcome.row["tensors"] > 40
    error, classes, left = bars({job: outcome})
    assert (error.holds, classes.holds, left.holds) == (True, True, True)


def test_a_job_that_raises_costs_its_own_row(tmp_path: Path) -> None:
    wrong = Job("accuracy", "vgg", "eager", scale="tiny")
    outcome = run(wrong, tmp_path)
    assert outcome.row is None
    assert "ValueError: there is no model 'vgg'" in outcome.failure
    (row,) = bars({wrong: outcome})
    assert row.holds is False and row.value is None and "vgg" in row.note


def test_a_job_that_hangs_is_ended(tmp_path: Path) -> None:
    outcome = run(Job("accuracy", "bert", "eager"), tmp_path, time_limit=0.5)
    assert outcome.row is None
    assert outcome.failure.startswith("It did not end within 0.5 s")


def test_only_compile_time_starts_with_empty_caches(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    assert environment(shared, Job("run", "bert", "cpp"), own)["KEEL_CACHE_DIR"] == str(shared / "keel")
    assert environment(shared, Job("compile", "bert", "cpp"), own)["KEEL_CACHE_DIR"] == str(own / "keel")


def test_every_part_has_a_row_for_a_failure() -> None:
    for part in ("accuracy", "dynamic", "compile", "run", "traffic"):
        job = Job(part, "bert", "cpp", along="batch" if part == "dynamic" else "")
        rows = list(bars({job: Outcome(None, "It died of SIGSEGV.")}))
        assert [row.holds for row in rows] == [False] and rows[0].note == "It died of SIGSEGV."


def test_what_inductor_did_not_do_is_no_figure() -> None:
    for part, figures in (("compile", {"seconds": 1.0}), ("traffic", {"kernels": 3, "bytes": 9})):
        (row,) = bars({Job(part, "bert", "cpp"): Outcome(figures)})
        assert (row.value, row.holds, row.note) == (None, False, "Inductor was not measured.")
