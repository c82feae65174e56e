"""A backend with a slow compiler compiles once in many processes."""

from __future__ import annotations

from dataclasses import replace

from keel_bench.jobs import Job, Selection
from keel_bench.warm_start.slow_plugin import bars, jobs, measure
from keel_conformance.workers.pool import Outcome


def test_the_second_process_does_not_compile() -> None:
    (job,) = jobs(Selection(("bert",), ("inference",), "cpp", scale="tiny"))
    assert job.rounds == 10
    row = measure(replace(job, rounds=2))
    assert (row["processes"], row["compiled"], row["different"]) == (2, 1, [])
    assert row["seconds"][0] > 1  # the compiler sleeps that long
    assert [bar.holds for bar in bars({job: Outcome(row)})] == [True, True]


def test_a_backend_that_compiles_twice_or_differs_falls_short() -> None:
    job = Job("warm-plugin", "mlp", "sleeper")
    row = {"processes": 2, "compiled": 2, "seconds": [1.5, 1.5], "different": ["output"]}
    assert [bar.holds for bar in bars({job: Outcome(row)})] == [False, False]
    (failed,) = bars({job: Outcome(None, "The process 1 failed.")})
    assert failed.holds is False
