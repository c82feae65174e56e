"""Compile time against ``aot_eager``'s: twice its seconds, and some for each kernel, are within the bar."""

from __future__ import annotations

import pytest

from keel_bench.jobs import Job, Selection
from keel_bench.models import model_zoo
from keel_bench.suites import programs_of_zoo
from keel_bench.zoo import compile_time
from keel_bench.zoo import model_accuracy as zoo_models
from keel_conformance.workers.pool import Outcome


def bar(**row: float) -> bool | None:
    job = Job("zoo-compile", "bert", "cpp")
    (found,) = compile_time.bars({job: Outcome(row)})
    return found.holds


def test_twice_and_a_second_for_a_hundred_kernels() -> None:
    assert bar(aot_eager=3.0, kernels=50, seconds=6.4)
    assert bar(aot_eager=3.0, kernels=50, seconds=6.6) is False
    assert bar(aot_eager=3.0, kernels=100, seconds=6.6)


def test_a_failure_has_a_row() -> None:
    job = Job("zoo-compile", "bert", "cpp")
    (found,) = compile_time.bars({job: Outcome(None, "It did not end.")})
    assert found.holds is False and found.note == "It did not end."


def test_every_model_is_measured_and_those_on_no_list_that_are_long_to_compile() -> None:
    chosen = Selection(programs_of_zoo(), ("training",), "cpp")
    models = [job.model for job in compile_time.jobs(chosen)]
    assert models == [*model_zoo.NAMES, *model_zoo.BEYOND] and "densenet121" in models
    assert not {job.model for job in zoo_models.jobs(chosen)} & {*model_zoo.BEYOND}


def test_the_kernel_cache_starts_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("KEEL_CACHE_DIR", "mine")
    seen: list[str] = []

    def seconds(job: Job, by: object) -> float:
        seen.append(os.environ["KEEL_CACHE_DIR"])
        return 1.0

    monkeypatch.setattr(compile_time, "seconds", seconds)
    assert compile_time.measure(Job("zoo-compile", "bert", "cpp")) == {"kernels": 0, "aot_eager": 1.0, "seconds": 1.0}
    assert "mine" not in seen and len(set(seen)) == 1 and len(seen) == 3 and os.environ["KEEL_CACHE_DIR"] == "mine"
