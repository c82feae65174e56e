"""What is held against eager PyTorch once more before it counts, and what no backend can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.harness import judge_worker
from keel_conformance.harness.protocol import (
    CaseResult,
    ExceptionInfo,
    JudgeRequest,
    JudgeResponse,
    RunResponse,
    Settings,
)
from keel_conformance.harness.scheduler import Scheduler
from keel_conformance.results.verdict import Verdict
from keel_conformance.workers.pool import Outcome

CASE = Case("relu", "f32", "op", "core", "aten.relu.default")


def ended(monkeypatch: pytest.MonkeyPatch, args: tuple[Any, ...], phase: str = "running") -> Verdict:
    monkeypatch.setattr(judge_worker, "draw_inputs", lambda case, call: Inputs(args))
    what = ExceptionInfo(phase, "RuntimeError: no")  # type: ignore[arg-type]
    return judge_worker.judge_batch(JudgeRequest((CASE,), RunResponse([], what), ""), lambda text: None).verdicts[0]


def test_a_call_that_pytorch_refuses_too_is_no_case_and_one_that_it_does_is(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ended(monkeypatch, (torch.ones(2), torch.ones(2)))
    assert refused.status == "not run" and "itself does not do this call" in refused.sentence
    assert ended(monkeypatch, (torch.ones(2),)).status == "fail"
    ours = ended(monkeypatch, (torch.ones(2), torch.ones(2)), "watching it")
    assert ours.status == "harness error"
    assert ours.sentence.startswith("The suite itself raised while watching it, which says nothing of the backend: ")


@pytest.mark.parametrize(("again", "stays"), [("quality warning", False), ("pass", False), ("fail", True)])
def test_what_fails_is_compared_with_eager_at_the_threads_of_the_backend(
    again: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = torch.get_num_threads(), list[int]()

    def judge(case: Case, inputs: Inputs, results: Sequence[Any], *, calls: int, types: Any, device: str) -> Verdict:
        seen.append(torch.get_num_threads())
        return Verdict("x", "fail" if len(seen) == 1 else again)  # type: ignore[arg-type]

    monkeypatch.setattr(judge_worker, "judge", judge)
    assert judge_worker._judge_call(CASE, Inputs(()), [], before + 1, (), "cpu").status == ("fail" if stays else again)
    assert seen == [before, before + 1] and torch.get_num_threads() == before


@pytest.mark.parametrize(("there", "stays"), [((torch.zeros(2),), False), (RuntimeError("no kernel"), True)])
def test_what_fails_on_a_device_is_compared_with_eager_there(
    there: Any, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def eager(case: Case, inputs: Inputs, device: str) -> Any:
        if isinstance(there, Exception):
            raise there
        return there

    def judge(*args: Any, there: Sequence[Any] = (), **kwargs: Any) -> Verdict:
        return Verdict("x", "quality warning" if there else "fail")

    monkeypatch.setattr(judge_worker, "has_eager", lambda device: True)
    monkeypatch.setattr(judge_worker, "_eager", eager)
    monkeypatch.setattr(judge_worker, "judge", judge)
    found = judge_worker._judge_call(CASE, Inputs(()), [], torch.get_num_threads(), (), "cuda")
    assert found.status == ("fail" if stays else "quality warning")


@pytest.mark.parametrize(
    ("name", "any_order"),
    [
        ("index_put", True),
        ("scatter_add", True),
        ("embedding_bag", True),
        ("upsample_cubic_aa_backward", True),
        ("embedding_dense_backward", True),
        ("put", True),
        ("col2im", True),
        ("scatter_reduce", True),
        ("bincount", True),
        ("sum", False),
        ("topk", False),
        ("sort", False),
        ("cumsum", True),
        ("cummax", False),
        ("mm", False),
    ],
)
def test_sums_at_one_place_may_have_other_bits_at_every_call(name: str, any_order: bool) -> None:
    found = Case(name, "f32", "op", "core", str(MEMBERS[name].targets[0]))
    assert judge_worker._is_deterministic(found) != any_order


def test_a_batch_with_a_call_that_pytorch_refuses_is_split_and_no_other_is_blamed(tmp_path: Path) -> None:
    other = Case("relu", "f16", "op", "core", "aten.relu.default")
    steps = Scheduler(Settings("eager"), tmp_path).resolve((CASE, other))
    answers = iter(
        [
            RunResponse([], ExceptionInfo("running", "no")),
            RunResponse([], ExceptionInfo("running", "no")),
            JudgeResponse([Verdict(CASE.id, "not run")]),
            RunResponse([CaseResult(other.id)]),
            JudgeResponse([Verdict(other.id, "pass")]),
        ]
    )
    next(steps)
    with pytest.raises(StopIteration) as end:
        while True:
            steps.send(Outcome(next(answers)))
    assert [v.status for v in end.value.value] == ["not run", "pass"]
