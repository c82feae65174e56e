"""Kernels that wait for memory, compared with copies: what they compute, what they are measured against, their bars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keel_bench.jobs import Job, Selection
from keel_bench.models.bandwidth_kernels import BYTES, FEW_BYTES, KERNELS
from keel_bench.run_time import LOCK
from keel_bench.speed import kernel_roofs
from keel_bench.suites import PARTS, SUITES
from keel_conformance.workers.pool import Outcome

DTYPES = tuple(kernel_roofs.DTYPES.values())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_arguments_of_the_size_that_is_asked_for(name: str, dtype: torch.dtype) -> None:
    kernel = KERNELS[name]
    arguments = kernel.arguments(dtype, "cpu", FEW_BYTES)
    assert arguments[0].dtype == dtype and 0.7 * FEW_BYTES <= arguments[0].nbytes <= FEW_BYTES
    results = kernel_roofs.step(kernel, kernel.fn, arguments)
    large = [t for t in arguments if t.nbytes == arguments[0].nbytes]
    assert len(results) == 1 + kernel.trained * sum(t.is_floating_point() for t in arguments)
    assert all(r.isfinite().all() for r in results)
    written = [r for r in results if r.nbytes == arguments[0].nbytes]
    assert len(large) + len(written) <= kernel.passes + (name == "adamw"), "AdamW returns what it has written"


def test_each_device_has_its_part_and_each_kernel_its_mode() -> None:
    for suite, device in (("cpu", "cpu"), ("gpu", "cuda")):
        part = f"kernels-{suite}"
        chosen = Selection(SUITES[suite].programs(), ("inference", "training"), "cpp", device=device)
        jobs = PARTS[part].jobs(chosen)
        assert len(jobs) == 2 * len(KERNELS) == len(set(jobs)) and {job.part for job in jobs} == {part}
        assert device in BYTES and {job.device for job in jobs} == {device}
    trained = Selection(("layer-norm", "adamw", "softmax-training", "resnet50"), ("training",), "cpp")
    assert {job.model for job in kernel_roofs.jobs("kernels-cpu", trained)} == {"softmax-training"}


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK, str(tmp_path / "lock"))
    monkeypatch.setattr(kernel_roofs, "TURN", 1e-4)


def job(name: str) -> Job:
    return Job("kernels-cpu", name, "cpp", rounds=1, scale="tiny")


@pytest.mark.usefixtures("lock")
@pytest.mark.parametrize("name", ["adamw", "cross-entropy-training", "dropout"])
def test_rounds_of_each_are_as_many(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_roofs, "compiled", lambda fn, compiler: fn)
    rounds = kernel_roofs.measure(job(name))["rounds"]
    assert {*rounds} == {"copy", "eager", "inductor", "keel"}
    assert {len(ms) for ms in rounds.values()} == {kernel_roofs.ROUNDS}


@pytest.mark.usefixtures("lock")
def test_a_wrong_result_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(fn: Callable[..., torch.Tensor], compiler: str) -> Callable[..., torch.Tensor]:
        return (lambda *args: fn(*args) * 1.01) if compiler == "cpp" else fn

    monkeypatch.setattr(kernel_roofs, "compiled", compiled)
    with pytest.raises(RuntimeError, match=r"keel is 0\.01 away from eager PyTorch"):
        kernel_roofs.measure(job("softmax"))


def test_bars_are_medians_of_ratios_of_rounds() -> None:
    rounds: dict[str, Any] = {"copy": [1.0, 2.0, 1.0], "eager": [9.0] * 3, "inductor": [2.0, 2.0, 2.0]}
    held = {job("softmax"): Outcome({"rounds": {**rounds, "keel": [1.0, 2.0, 1.25]}}, "")}
    copy, inductor = kernel_roofs.bars(held)
    assert (copy.value, copy.holds, inductor.value, inductor.holds) == (1.0, True, 1.6, True)
    slow = {job("softmax"): Outcome({"rounds": {**rounds, "keel": [2.5] * 3}}, "")}
    assert [bar.holds for bar in kernel_roofs.bars(slow)] == [False, False]
    (lost,) = kernel_roofs.bars({job("softmax"): Outcome(None, "It died.")})
    assert lost.holds is False and lost.note == "It died."
