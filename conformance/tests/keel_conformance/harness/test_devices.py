"""A backend on a device of its own: errors that come late, a device that answers no more, results of other types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import TensorType
from keel_conformance import devices, programs
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.cases.plan import plan
from keel_conformance.harness import backend_worker, judge_worker
from keel_conformance.harness.protocol import (
    CaseResult,
    ExceptionInfo,
    JudgeRequest,
    JudgeResponse,
    RunRequest,
    RunResponse,
    Settings,
)
from keel_conformance.harness.scheduler import Scheduler
from keel_conformance.oracles.judge import judge
from keel_conformance.programs.observation import Observation
from keel_conformance.results.verdict import Verdict
from keel_conformance.workers.pool import Outcome

CHOLESKY = Case("cholesky", "f32", "op", "core", "aten.linalg_cholesky_ex.default")


def silent(text: str) -> None:
    pass


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """A device that answers as long as it is not told otherwise."""
    dead: list[bool] = []

    def read(device: str) -> None:
        if dead:
            raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(devices, "read_value", read)
    devices.has_eager.cache_clear()
    yield dead
    devices.has_eager.cache_clear()


def test_a_device_that_never_computed_does_not_cease_to_answer(late: list[bool]) -> None:
    late.append(True)
    assert not devices.has_eager("npu") and devices.is_alive("npu")


def test_a_device_may_cease_to_answer(late: list[bool]) -> None:
    assert devices.has_eager("npu") and devices.is_alive("npu")
    late.append(True)
    assert not devices.is_alive("npu") and devices.is_alive("cpu")


def test_calls_after_the_device_died_are_left_to_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = tuple(c for c in plan(tier="standard", ops=["mm"]) if c.kind == "negative")[:3]
    assert len(cases) == 3
    alive = iter([True, True, False, False, False])  # of two cases, before and after looking; at the end
    monkeypatch.setattr(backend_worker, "is_alive", lambda device: next(alive))
    found = backend_worker.run_batch(RunRequest(Settings("eager"), cases, str(tmp_path / "file")), silent)
    assert [t.case for t in found.results] == [c.id for c in cases[:2]] and found.spent
    assert found.clock["all"] >= found.clock["backend"] > 0


def test_a_program_that_ends_the_device_for_eager_pytorch_is_not_run(
    late: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And its process judges no other."""

    def judged(case: Case, observed: Any, device: str) -> Verdict:
        late.append(True)
        return Verdict(case.id, "fail", "contract", "call0 differs.", "contract.errors.C1")

    monkeypatch.setattr(programs, "judge", judged)
    case, file = next(iter(programs.cases())), tmp_path / "file"
    Observation(()).save(Path(f"{file}.0"))
    assert devices.has_eager("npu")
    found = judge_worker.judge_batch(
        JudgeRequest((case,), RunResponse([CaseResult(case.id)], device="npu"), str(file)), silent
    )
    assert found.spent and found.verdicts[0].status == "not run" and not found.verdicts[0].clause
    assert found.verdicts[0].sentence == "What eager PyTorch raises there ends all that a process has on npu."


def test_what_pytorch_cannot_trace_for_a_device_is_no_case_there(late: list[bool]) -> None:
    late.append(True)  # nor does eager PyTorch say anything of it
    untraced = ExceptionInfo("tracing it", "KeelError: aten._fft_r2c.default cannot be traced.")
    case = Case("relu", "f32", "op", "core", "aten.relu.default", choice=(("input", "s0"),))
    verdict = judge_worker._judge_exception(case, untraced, "npu")
    assert verdict.status == "not run" and "cannot trace this call on npu" in verdict.sentence


def test_the_rest_of_a_batch_is_asked_of_another_process(tmp_path: Path) -> None:
    one, two = Case("relu", "f32", "negative", "core"), Case("relu", "f16", "negative", "core")
    steps = Scheduler(Settings("eager"), tmp_path).resolve((one, two))
    answers = iter(
        [
            RunResponse([CaseResult(one.id)], spent=True),
            JudgeResponse([Verdict(one.id, "pass")]),
            RunResponse([CaseResult(two.id)]),
            JudgeResponse([Verdict(two.id, "fail")]),
            RunResponse([CaseResult(two.id)]),
            JudgeResponse([Verdict(two.id, "fail")]),
        ]
    )
    asked = [next(steps).job.cases]
    with pytest.raises(StopIteration) as end:
        while True:
            asked.append(steps.send(Outcome(next(answers))).job.cases)
    assert [v.status for v in end.value.value] == ["pass", "fail"]
    assert asked == [(one, two), (one,), *[(two,)] * 4]


@pytest.mark.parametrize(
    ("backend", "device", "status"),
    [
        ("faulty_backends:refuses", "npu", "not run"),
        ("faulty_backends:refuses", "cpu", "fail"),
        ("faulty_backends:well", "npu", "fail"),
    ],
)
def test_what_no_kernel_of_the_device_does_is_only_held_against_who_claims_it(
    backend: str, device: str, status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both run eager PyTorch's, which raises at this matrix only once it runs."""
    monkeypatch.setattr(
        backend_worker, "draw_inputs", lambda case, call: Inputs((-torch.ones(2, 2),), {"check_errors": True})
    )
    monkeypatch.setattr(judge_worker, "draw_inputs", lambda case, call: Inputs((torch.eye(2),), {"check_errors": True}))
    file = str(tmp_path / "file")
    performed = backend_worker.run_batch(RunRequest(Settings(backend), (CHOLESKY,), file), silent)
    performed.device = device
    (found,) = judge_worker.judge_batch(JudgeRequest((CHOLESKY,), performed, file), silent).verdicts
    assert found.status == status and "cholesky" in found.sentence


def test_a_result_of_another_type_there_is_held_to_that_type_alone() -> None:
    """native_dropout's mask is of floats on the host, and of bool on CUDA."""
    case = Case("relu", "f32", "op", "core", "aten.relu.default")
    x = torch.ones(2, 3)
    there = (TensorType.dense(torch.bool, (3,), "cuda"),)
    assert judge(case, Inputs((x,)), [x]).status == "pass"
    assert judge(case, Inputs((x,)), [torch.zeros(3, dtype=torch.bool)], types=there).status == "pass"
    wrong = judge(case, Inputs((x,)), [x], types=there)
    assert wrong.status == "fail" and wrong.sentence == "The result has the dtype float32, not bool."
    same = (TensorType.dense(torch.float32, (2, 3), "cuda"),)
    assert judge(case, Inputs((x,)), [x], types=same).status == "pass"
    assert judge(case, Inputs((x,)), [x + 1], types=same).status == "fail"
