"""An OpInfo's samples compiled as a user's functions: a row distinguishes samples that pass, are wrong or raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from keel import universe
from keel_bench.jobs import Job, Selection
from keel_bench.zoo import opinfo_samples, ways


def ends(name: str, mode: str = "inference") -> dict[str, list[str]]:
    job = Job("zoo-samples", name, "cpp", mode, along="static", rounds=1)
    found: dict[str, list[str]] = opinfo_samples.measure(job)["ends"]
    return found


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_what_is_compiled_right_holds(mode: str) -> None:
    assert list(ends("tanh", mode)) == [ways.HOLDS]


def test_what_is_undefined_is_not_judged() -> None:
    assert list(ends("empty_like")) == [ways.UNJUDGED]


def test_what_draws_other_numbers_each_time_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = universe.examples("tanh", grad=False, most=1)
    noisy = replace(example, fn=lambda x: (x + torch.rand_like(x),))
    monkeypatch.setattr(universe, "examples", lambda *args, **kwargs: [noisy])
    assert ends("tanh")[ways.UNJUDGED][0].endswith("Eager's own results vary from call to call.")


def test_a_wrong_number_and_a_wrong_type_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
        return lambda fn, job: lambda *inputs: tuple(change(out) for out in fn(*inputs))

    monkeypatch.setattr(ways, "keel", other(lambda out: out * 1.001))
    assert "times eager's" in ends("tanh")[ways.WRONG][0]
    monkeypatch.setattr(ways, "keel", other(lambda out: out.double()))
    assert "float64" in ends("tanh")[ways.WRONG][0]


def test_an_error_counts_where_aot_eager_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fn: Callable[..., Any], job: Job) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            raise ValueError("never")

        return run

    monkeypatch.setattr(ways, "keel", refuse)
    assert "ValueError: never" in ends("tanh")[ways.RAISED][0]
    monkeypatch.setattr(ways, "aot_eager", refuse)
    assert "ValueError: never" in ends("tanh")[ways.NOT_AOT][0]


def test_gradients_are_asked_of_what_promises_them() -> None:
    chosen = Selection(("tanh", "nonzero", "bert"), ("inference", "training"), "cpp", samples=3)
    jobs = opinfo_samples.jobs(chosen)
    assert {(job.model, job.mode) for job in jobs} == {
        ("tanh", "inference"),
        ("tanh", "training"),
        ("nonzero", "inference"),
    }
    assert {job.rounds for job in jobs} == {3} and len(jobs) == 6
