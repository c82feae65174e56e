"""Contenders run in processes of their own; one that fails costs its own figures, and eager PyTorch costs the job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from keel_bench.jobs import Job, Selection
from keel_bench.models.published import MODELS
from keel_bench.run_time import LOCK
from keel_bench.speed import contender_process, side_by_side
from keel_bench.speed.contender_process import FIRST, MEMORY, ROUND, Contender
from keel_bench.speed.contenders import compiled_by, contenders, environment_of
from keel_conformance.models.model_case import ModelCase

JOB = Job("speed-cpu", "linear", "eager", rounds=1, batch=2)


def linear(job: Job) -> ModelCase:
    torch.manual_seed(0)
    return ModelCase("linear", nn.Linear(3, 3), (torch.ones(job.batch, 3),), {}, {}, lambda out: out.sum())


def test_jobs_have_whole_columns_and_every_batch() -> None:
    jobs = side_by_side.jobs("speed-cpu", Selection(("resnet50", "decode-step"), ("inference", "training"), "cpp"))
    assert [(j.model, j.mode, j.precision, j.batch) for j in jobs[:4]] == [
        ("resnet50", "inference", "fp32", 8),
        ("decode-step", "inference", "fp32", 8),
        ("resnet50", "training", "fp32", 8),
        ("resnet50", "inference", "bf16", 8),
    ]
    assert len(jobs) == len(set(jobs)) == 2 * 2 * 3
    few = Selection(("resnet50",), ("inference",), "cpp", device="cuda", precisions=("bf16",), batches=("throughput",))
    assert [j.batch for j in side_by_side.jobs("speed-gpu", few)] == [MODELS["resnet50"].throughput["cuda"]]


def test_there_is_a_best_mode_where_a_compiler_has_one() -> None:
    assert contenders(Job("speed-cpu", "m", "cpp")) == ("eager", "inductor", "keel", "inductor-best", "keel-best")
    assert contenders(Job("speed-cpu", "m", "cpp", "training")) == ("eager", "inductor", "keel")
    on_gpu = contenders(Job("speed-gpu", "m", "triton", "training", device="cuda"))
    assert on_gpu == ("eager", "inductor", "keel", "inductor-best", "keel-best")


def test_inductor_freezes_only_in_its_best_mode_of_inference_on_a_cpu() -> None:
    best = {"TORCHINDUCTOR_FREEZING": "1"}
    assert environment_of("inductor-best", Job("speed-cpu", "m", "cpp")) == best
    assert not environment_of("inductor", Job("speed-cpu", "m", "cpp"))
    assert not environment_of("inductor-best", Job("speed-gpu", "m", "triton", device="cuda"))


@pytest.mark.parametrize("contender", contenders(Job("speed-gpu", "m", "cpp", device="cuda")))
def test_every_contender_of_a_gpu_can_be_asked_to_compile(contender: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[object] = []

    def compile(fn: Callable[..., object], **how: object) -> Callable[..., object]:
        modes.append(how.get("mode"))
        return fn

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr("keel.compile", compile)
    assert compiled_by(contender, len, Job("speed-gpu", "m", "cpp", device="cuda")) is len
    expected = {"eager": [], "inductor-best": ["max-autotune"], "keel-best": ["reduce-overhead"]}
    assert modes == expected.get(contender, [None])


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_contender_answers_with_figures(mode: str) -> None:
    racer = Contender(Job("speed-cpu", "linear", "eager", mode, batch=2), "eager", linear)
    first = racer((FIRST, 0.0), lambda doing: None)
    assert first["unlike_eager"] == 0 and first["first_s"] > 0
    assert racer((ROUND, 0.001), lambda doing: None)["ms"] > 0
    assert 10 < racer((MEMORY, 0.0), lambda doing: None)["peak_mib"] < 100_000


def test_a_long_step_is_run_once_in_a_round() -> None:
    racer = Contender(JOB, "eager", linear)
    racer((FIRST, 0.0), lambda doing: None)
    count = 0
    forward = racer.forward

    def counted(*args: torch.Tensor) -> object:
        nonlocal count
        count += 1
        return forward(*args)

    racer.forward = counted
    racer((ROUND, 0.0), lambda doing: None)
    assert count == 1
    racer((ROUND, 1e3), lambda doing: None)
    assert count == 2 + contender_process.MOST_STEPS


def test_the_distance_is_relative() -> None:
    one = torch.ones(4)
    assert contender_process.distance([one, 2 * one], [one, one]) == 1.0


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LOCK, str(tmp_path / "lock"))
    monkeypatch.setattr(side_by_side, "contenders", lambda job: ("eager", "keel"))
    monkeypatch.setattr(side_by_side, "TURN", 0.001)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "absent"])
@pytest.mark.usefixtures("locked")
def test_a_contender_that_fails_costs_its_own_figures(backend: str) -> None:
    row = side_by_side.measure(Job("speed-cpu", "dlrm", backend, scale="tiny", rounds=1, batch=2))["contenders"]
    assert len(row["eager"]["rounds"]) == side_by_side.ROUNDS and row["eager"]["peak_mib"] > 10
    if backend == "eager":
        assert len(row["keel"]["rounds"]) == side_by_side.ROUNDS and row["keel"]["cpu_s"] > 0
    else:
        assert "absent" in row["keel"]["failure"] and "rounds" not in row["keel"]


@pytest.mark.slow
@pytest.mark.usefixtures("locked")
def test_a_model_that_eager_cannot_run_has_no_figures() -> None:
    with pytest.raises(RuntimeError, match=r"Eager PyTorch cannot run it\..*KeyError: 'vgg'"):
        side_by_side.measure(Job("speed-cpu", "vgg", "eager"))
