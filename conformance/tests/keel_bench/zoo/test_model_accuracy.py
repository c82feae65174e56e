"""A model of the zoo is run at three sizes; the row distinguishes models that pass, are wrong, raise or cannot run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from keel_bench.jobs import Job, Selection
from keel_bench.models import model_zoo
from keel_bench.zoo import model_accuracy, ways
from keel_conformance.models import ModelCase

JOB = Job("zoo-models", "small", "cpp", "training", along="dynamic")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zoo of one model of a layer."""

    def build(name: str, seed: int = 0, size: model_zoo.Size | None = None, device: str = "cpu") -> ModelCase:
        torch.manual_seed(seed)
        x = torch.randn(size.batch if size else 2, 4)
        return ModelCase(name, nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (x,), {}, {}, lambda out: out.square().sum())

    monkeypatch.setattr(model_zoo, "build", build)
    monkeypatch.setattr(model_zoo, "sizes", lambda name: (model_zoo.Size(2), model_zoo.Size(3), model_zoo.Size(5)))


def by(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda model, job: lambda x: fn(model, x)


def raises(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 3:
        raise ValueError("no three")
    return model(x)


def test_a_model_that_is_compiled_right_holds_at_each_size() -> None:
    assert model_accuracy.measure(JOB) == {"ends": {ways.HOLDS: ["2", "3", "5"]}, "kinks": []}


def test_a_wrong_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "keel", by(lambda model, x: model(x) * (1.0 + 1e-4 * (x.shape[0] == 3))))
    ends = model_accuracy.measure(JOB)["ends"]
    assert ends[ways.HOLDS] == ["2", "5"] and "times eager's error" in ends[ways.WRONG][0]


def test_an_error_counts_where_aot_eager_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "keel", by(raises))
    assert model_accuracy.measure(JOB)["ends"] == {ways.HOLDS: ["2", "5"], ways.RAISED: ["3: ValueError: no three"]}
    monkeypatch.setattr(ways, "aot_eager", by(raises))
    assert model_accuracy.measure(JOB)["ends"] == {ways.HOLDS: ["2", "5"], ways.NOT_AOT: ["3: ValueError: no three"]}


def test_jobs_are_every_way_of_the_models_that_the_zoo_has() -> None:
    chosen = Selection(("bert", "add"), ("inference", "training"), "cpp")
    assert [(job.model, job.mode, job.along) for job in model_accuracy.jobs(chosen)] == [
        ("bert", mode, along) for mode in ("inference", "training") for along in ("static", "dynamic")
    ]


def test_a_run_that_is_cut_short_has_ended_the_cheap_ways_of_all_models() -> None:
    chosen = Selection(("bert", "resnet18", "dpn107"), ("inference", "training"), "cpp")
    ended = [(job.model, job.mode, job.along) for job in model_accuracy.jobs(chosen)]
    assert ended[:3] == [(model, "inference", "static") for model in ("dpn107", "resnet18", "bert")]
    assert {(mode, along) for _, mode, along in ended[-3:]} == {("training", "dynamic")}
