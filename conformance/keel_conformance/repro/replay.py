"""Calls of one operator tried on a backend and judged, in a process that may die: does it still fail, and how?"""

from __future__ import annotations

import re
import runpy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch

import keel
from keel import KeelError, TensorType

from ..cases.case import Case, Inputs
from ..harness.backend_under_test import BackendUnderTest, load_backend
from ..harness.backend_worker import CallRecord, check_aliasing, inputs_on, overload, types_on
from ..harness.protocol import CaseResult
from ..harness.red_zones import same_bits, snapshot
from ..oracles.declared_facts import judge_by_facts
from ..oracles.judge import judge
from ..results.verdict import BAD, Verdict
from ..workers.pool import ReportPhase, WorkerPool
from ..workers.spawn import forked

WARM = "keel_conformance.harness.preload"
DIED: Mapping[str, str] = {"late": "timeout", "SIGKILL": "resource"}


@dataclass(frozen=True)
class FailingCalls:
    """What is tried: the trials of ``case`` one after another, on what ``subject`` names. ``recipes`` has, by place
    (trial, then tensor), the text by which a large tensor is drawn.
    """

    subject: str
    case: Case
    inputs: tuple[Inputs, ...]
    recipes: tuple[tuple[tuple[int, int], str], ...] = ()


@dataclass(frozen=True)
class Script:
    """A script that is run; its exit status is what comes of it."""

    path: str


@dataclass(frozen=True)
class Work:
    """Any work of a module's function on plain data."""

    function: Callable[[Any], Any]
    argument: Any


def work(job: FailingCalls | Script | Work, tell: ReportPhase) -> Any:
    """What the processes do."""
    tell("trying it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match job:
            case FailingCalls():
                return replay(job)
            case Script():
                return exit_status(job.path)
        return job.function(job.argument)


class ReplayPool:
    """A process that tries one thing after another, and is replaced where it dies."""

    def __init__(self, limit: float = 30.0):
        self._crew, self.limit = WorkerPool(forked(work, WARM), 1), limit

    def verdict(self, calls: FailingCalls) -> Verdict:
        """What is said of the calls; of the end of the process if it died."""
        row, end, message = self._do(calls)
        if end:
            return Verdict(calls.case.id, DIED.get(end, "crash"), "process", message)  # type: ignore[arg-type]
        return row  # type: ignore[no-any-return]

    def status(self, path: str) -> int:
        """The exit status of a script; 2 if its process died."""
        row, end, _ = self._do(Script(path))
        return 2 if end else int(row)

    def value(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """What a function of a module gives; None if its process died or it raised."""
        return self._do(Work(function, argument))[0]

    def _do(self, job: Any) -> tuple[Any, str, str]:
        self._crew.submit(job, self.limit)
        while not (ends := self._crew.poll(0.5)):
            pass
        outcome = ends[0][1]
        return outcome.row, "" if outcome.row is not None else outcome.end or "exit", outcome.failure

    def close(self) -> None:
        self._crew.close()

    def __enter__(self) -> ReplayPool:
        return self

    def __exit__(self, *_: Any) -> None:
        with closing(self):
            pass


def exit_status(path: str) -> int:
    """Runs a script in this process as ``python path`` would."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    except BaseException:
        return 1
    return 0


def reason(v: Verdict) -> tuple[str, ...]:
    """Why it failed; what is smaller has to fail by the same. Sizes and numbers, which messages of exceptions have, do
    not count.
    """
    if v.status == "fail" and v.oracle == "raises":
        return v.status, v.oracle, " ".join(re.sub(r"%\w+|[\d.,\[\]()+-]+", "", v.sentence).split()[:30])
    if v.status == "fail" and v.oracle in ("contract", "repeat"):
        return v.status, v.oracle, str(v.figures.get("fault", ""))
    kinds = {"exact by construction": "dot"}
    return v.status, kinds.get(v.oracle, v.oracle) if v.status == "fail" else ""


def replay(calls: FailingCalls) -> Verdict:
    """The verdict on the calls: the first one that is bad, else pass."""
    case, op, under_test = calls.case, overload(calls.case.overload), load_backend(calls.subject)
    record = CallRecord(
        case,
        op,
        list(calls.inputs),
        CaseResult(case.id),
        [inputs_on(under_test.device, case, inputs) for inputs in calls.inputs],
    )
    try:
        first = record.guarded[0]
        batch = keel.testing.compile_calls(
            [(op, first.args, first.kwargs)], backends=under_test.with_eager, strict=True
        )
        for guarded in record.guarded:
            torch.manual_seed(case.seed)
            record.results.append(batch.run([(guarded.args, guarded.kwargs)])[0])
            record.copies.append([snapshot(r) for r in record.results[-1]])
    except (Exception, SystemExit) as e:
        if case.kind == "negative":
            return Verdict(case.id, "pass", "precondition")
        bad_graph = isinstance(e, KeelError) and e.code == "bad-graph"
        return Verdict(
            case.id,
            "harness error" if bad_graph else "fail",
            "raises",
            f"It raised while running: {type(e).__name__}: {str(e).strip()[:300]}",
        )
    if under_test.name not in batch.owners[0]:
        return Verdict(case.id, "not claimed", "placement")
    if case.kind == "negative":
        return Verdict(case.id, "fail", "precondition", "It gave values for a call that breaks a precondition.")
    return _judge_results(record, types_on(under_test.device, batch.results[0]), under_test)


def _judge_call(
    case: Case,
    inputs: Inputs,
    results: Sequence[Any],
    calls: int,
    types: Sequence[TensorType | None],
    under_test: BackendUnderTest,
) -> Verdict:
    """The verdict on one call, by IEEE arithmetic and then by what the backend declares."""

    def verdict(operands: Inputs = inputs, **how: Any) -> Verdict:
        return judge(case, operands, results, calls=calls, types=types, device=under_test.device, **how)

    facts = under_test.arithmetic
    return judge_by_facts(verdict(), inputs, facts, lambda operands, by: verdict(operands, arithmetic=by))


def _judge_results(record: CallRecord, types: Sequence[TensorType | None], under_test: BackendUnderTest) -> Verdict:
    case, calls = record.case, record.copies
    faults = [fault.of_call(k) for k, guarded in enumerate(record.guarded) for fault in guarded.faults()]
    check_aliasing([record])
    if faults := faults + record.result.faults:
        return Verdict(case.id, "fail", "contract", faults[0].sentence, faults[0].clause, faults[0].figures)
    for k, (inputs, copies) in enumerate(zip(record.inputs, calls, strict=True)):
        v = _judge_call(case, inputs, copies, max(2, len(calls)), types, under_test)
        if v.status in BAD:
            return replace(v, sentence=f"Call {k}: {v.sentence}", figures={**v.figures, "call": k}) if k else v
    if len(calls) == 3 and any(not same_bits(a, b) for a, b in zip(calls[0], calls[2], strict=True)):
        return Verdict(case.id, "fail", "repeat", "Result 0 has other bits when the same call is made again.")
    return Verdict(case.id, "pass")
