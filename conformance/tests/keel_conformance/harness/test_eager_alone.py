"""Before a crash is called the backend's, eager PyTorch is tried alone; and devices declare their arithmetic."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from keel import KeelError
from keel_conformance import devices
from keel_conformance.cases.case import Case
from keel_conformance.cases.plan import plan
from keel_conformance.harness import scheduler
from keel_conformance.harness.backend_under_test import BackendUnderTest
from keel_conformance.harness.eager_alone import Blame, is_doubtful, run_alone
from keel_conformance.harness.protocol import EagerRequest, EagerResponse, RunRequest, Settings
from keel_conformance.harness.scheduler import Request, Scheduler
from keel_conformance.results.verdict import Verdict
from keel_conformance.workers.pool import STARTING, Outcome

CASE = Case("neg", "f32", "op", "core", "aten.neg.default")
CRASH = Verdict(CASE.id, "crash", "process", "It died of SIGSEGV while running.")
DIED = Outcome(
    None, "It died of SIGSEGV while running eager PyTorch alone.", "running eager PyTorch alone", 1.0, "SIGSEGV"
)


def settled(steps: Generator[Request, Outcome, list[Verdict]], answers: dict[type, Outcome]) -> tuple[Any, list[str]]:
    """The verdicts, and which jobs were asked for; each is answered by its kind."""
    asked: list[str] = []
    try:
        request = next(steps)
        while True:
            asked.append(type(request.job).__name__ + (" fresh" if request.fresh else ""))
            request = steps.send(answers[type(request.job)])
    except StopIteration as end:
        return end.value, asked


@pytest.fixture
def on_npu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scheduler:
    backend: Any = SimpleNamespace(name="acme", device="npu", last_resort=False)
    monkeypatch.setattr(scheduler, "load_backend", lambda text: BackendUnderTest(text, backend))
    return Scheduler(Settings("acme"), tmp_path)


def test_a_crash_that_eager_has_alone_is_not_the_backends(on_npu: Scheduler) -> None:
    crashed = Outcome(None, "It died of SIGSEGV while running.", "running", 1.0, "SIGSEGV")
    (verdict,), asked = settled(on_npu.resolve((CASE,)), {RunRequest: crashed, EagerRequest: DIED})
    assert asked == ["RunRequest", "RunRequest fresh", "EagerRequest fresh"]
    assert (verdict.status, verdict.oracle) == ("not run", "eager alone")
    assert "on npu" in verdict.sentence and "said to crash" in verdict.sentence


def test_a_crash_that_eager_comes_through_is_the_backends(on_npu: Scheduler) -> None:
    crashed = Outcome(None, "It died of SIGSEGV while running.", "running", 1.0, "SIGSEGV")
    (verdict,), _ = settled(on_npu.resolve((CASE,)), {RunRequest: crashed, EagerRequest: Outcome(EagerResponse())})
    assert verdict.status == "crash"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DIED, "not run"),
        (Outcome(None, "It died of SIGKILL.", STARTING, 1.0, "SIGKILL"), "crash"),
        (Outcome(EagerResponse(attempted=False)), "crash"),
        (Outcome(EagerResponse(error="RuntimeError: no kernel")), "crash"),
    ],
)
def test_only_a_process_that_died_at_the_case_clears_the_backend(outcome: Outcome, status: str) -> None:
    assert Blame(CRASH, "npu").after(outcome).status == status


def test_what_may_not_be_the_backends() -> None:
    assert is_doubtful(CRASH, CASE) and is_doubtful(Verdict(CASE.id, "harness error", "judge", "It died."), CASE)
    assert not is_doubtful(Verdict(CASE.id, "fail", "ulp"), CASE)
    assert not is_doubtful(CRASH, Case("chain", "f32", "kernel", "core"))


def test_eager_alone_runs_calls_and_says_what_it_raised() -> None:
    case = plan(ops=["neg"], tier="smoke")[0]
    assert run_alone(EagerRequest(case, "cpu"), lambda text: None) == EagerResponse()
    assert not run_alone(EagerRequest(case, "npu"), lambda text: None).attempted


def test_a_device_declares_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(numeric_facts={"flushes_subnormals": (torch.float32,)})
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert devices.declared_facts("npu").sentences() == ("flushes subnormals of float32",)
    module.numeric_facts = {"rounds_up": True}
    with pytest.raises(KeelError, match=r"torch\.npu\.numeric_facts cannot be read"):
        devices.declared_facts("npu")


def test_a_backend_without_facts_of_its_own_has_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    own, none = devices.Arithmetic(float64=False), devices.Arithmetic()
    flushing = SimpleNamespace(numeric_facts={"flushes_subnormals": (torch.float32,)})
    monkeypatch.setattr(torch, "get_device_module", lambda device: flushing)
    for declared, expected in ((own, ("has no float64",)), (none, ("flushes subnormals of float32",))):
        backend: Any = SimpleNamespace(name="acme", device="npu", arithmetic=declared)
        assert BackendUnderTest("acme", backend).arithmetic.sentences() == expected
