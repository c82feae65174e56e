"""In a process that the backend never sees: what each case should have given, and the verdict on what it gave."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from keel import TensorType
from keel.opset import MEMBERS
from keel.plugin import Arithmetic

from ..cases.case import Case, Inputs
from ..cases.case_kinds import package_of
from ..cases.inputs import draw_inputs
from ..cases.trivial import is_deterministic
from ..devices import HOST, has_eager, is_alive
from ..num_threads import threads
from ..oracles.declared_facts import judge_by_facts
from ..oracles.error_rules import IEEE, flat
from ..oracles.judge import judge, judge_independence
from ..programs.observation import Observation
from ..pytree import tree_map
from ..results.verdict import BAD, PARTS, REFUSED, Verdict
from ..workers.pool import ReportPhase
from . import attribution
from .backend_worker import Clock, inputs_on, overload
from .protocol import DRAWS, OURS, CaseResult, ExceptionInfo, JudgeRequest, JudgeResponse

MOST_WORDS = 400
"""Characters of the reasons that a verdict keeps."""


def judge_batch(job: JudgeRequest, tell: ReportPhase) -> JudgeResponse:
    """The work of a process that judges."""
    clock, spent = Clock(), False
    device = job.response.device
    if job.response.exception is not None:
        return JudgeResponse([_judge_exception(job.cases[0], job.response.exception, device)])
    with clock.at("all"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match job.cases[0].kind:
            case "op":
                left = torch.load(job.file, weights_only=True) if Path(job.file).exists() else []
                verdicts = [
                    _judge_calls(case, case_result, results, job, clock, tell)
                    for case, case_result, results in zip(job.cases, job.response.results, left, strict=True)
                ]
            case "negative":
                verdicts = [_judge_invalid_call(*pair) for pair in zip(job.cases, job.response.results, strict=True)]
            case _:
                verdicts = [
                    _judge_program(*pair, f"{job.file}.{k}", device, clock, tell)
                    for k, pair in enumerate(zip(job.cases, job.response.results, strict=True))
                ]
                if spent := not is_alive(device):
                    verdicts = [_fatal(v, device) for v in verdicts]
    verdicts = [_with_figures(v, t) for v, t in zip(verdicts, job.response.results, strict=True)]
    return JudgeResponse(verdicts, dict(clock.seconds), spent)


def _with_figures(verdict: Verdict, result: CaseResult) -> Verdict:
    """The verdict with the seconds of the backend, and with its reasons if it took the case in part."""
    more = {REFUSED: result.refusals[:MOST_WORDS]} if result.claimed and result.refusals else {}
    return replace(verdict, seconds=round(result.seconds, 6), figures={**verdict.figures, **more})


def _verdict_of_run(case: Case, result: CaseResult, device: str) -> Verdict | None:
    """Returns the verdict that needs no look at the results; None if the results decide."""
    if result.exception is not None and not result.claimed and device != HOST:
        return Verdict(
            case.id,
            "not run",
            "raises",
            f"{result.refusals} PyTorch {torch.__version__} itself does not do "
            f"this call on {device}. {result.exception.text}",
        )
    if result.exception is not None:
        return _judge_exception(case, result.exception, device)
    if not result.claimed:
        return Verdict(case.id, "not claimed", "placement", result.refusals)
    if result.faults:
        first = result.faults[0]
        return Verdict(
            case.id,
            "fail",
            "contract",
            " ".join(dict.fromkeys(f.sentence for f in result.faults)),
            first.clause,
            first.figures,
        )
    return None


def _judge_calls(
    case: Case,
    result: CaseResult,
    results: Sequence[Sequence[Any]],
    job: JudgeRequest,
    clock: Clock,
    tell: ReportPhase,
) -> Verdict:
    """Returns the worst verdict on the calls. What was observed where they ran comes first."""
    device, facts = job.response.device, job.response.arithmetic
    if (verdict := _verdict_of_run(case, result, device)) is not None:
        return verdict
    tell(f"judging {case.id}")
    collected: list[Verdict] = []
    inputs: list[Inputs] = []
    for call in range(max(DRAWS) + 1):
        with clock.at("drawing"):
            inputs.append(draw_inputs(case, call))
        with clock.at("judging"):
            collected.append(_judge_call(case, inputs[call], results[call], job.threads, result.types, device, facts))
        if collected[-1].status in BAD:
            if not call:
                return collected[-1]
            retained = attribution.of_later_call(results[0], results[call])
            prefix = "It has the results of call 0. " if retained else ""
            return replace(
                collected[-1],
                sentence=f"Call {call}: {prefix}{collected[-1].sentence}",
                clause=retained or collected[-1].clause,
                figures={**collected[-1].figures, "call": call},
            )
    with clock.at("judging"):
        sentence = judge_independence(case, inputs, results)
    if sentence:
        return Verdict(case.id, "fail", "statistical", sentence)
    if result.nondeterministic and _is_deterministic(case):
        which = ", ".join(map(str, result.nondeterministic))
        sentence = f"Result {which} has other bits when the same call is made again."
        return Verdict(case.id, "fail", "repeat", sentence, attribution.REPEATED)
    decided = [v for v in collected if v.status != "vacuous"] or collected  # one call that tells something is enough
    return max(decided, key=lambda v: (v.status != "pass", "fact" in v.figures, float(v.figures.get("ratio") or 0.0)))


def _judge_call(
    case: Case,
    inputs: Inputs,
    results: Sequence[Any],
    count: int,
    types: Sequence[TensorType | None],
    device: str,
    arithmetic: Arithmetic = IEEE,
) -> Verdict:
    """The verdict on one call, by IEEE arithmetic and then by what the backend declares. What fails is held once more
    against eager PyTorch with as many threads as the backend had: where its work is divided among them decides what its
    vectors compute and what its scalar code does, and how partial results are rounded. And against eager PyTorch on the
    backend's device, whose libraries may compute otherwise than those of the host: by transforms, say.
    """

    def verdict(operands: Inputs = inputs, **how: Any) -> Verdict:
        return judge(case, operands, results, calls=max(DRAWS) + 1, types=types, device=device, **how)

    first = judge_by_facts(verdict(), inputs, arithmetic, lambda operands, by: verdict(operands, arithmetic=by))
    if first.status != "fail":
        return first
    if device != HOST:
        there = _eager_on_device(case, inputs, device)
        again = verdict(there=there) if there else first
    elif count == torch.get_num_threads():
        return first
    else:
        with threads(count):
            again = verdict()
    return first if again.status in BAD else again


def _eager_on_device(case: Case, inputs: Inputs, device: str) -> Sequence[Any]:
    """What eager PyTorch gives on the device; nothing where it has no kernel."""
    if not has_eager(device):
        return ()
    try:
        return flat(_eager(case, inputs, device))
    except Exception:  # operators refuse as they like
        return ()


def _eager(case: Case, inputs: Inputs, device: str) -> Any:
    """What eager PyTorch gives there. Raises what it raises."""
    there = inputs_on(device, case, inputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        result = overload(case.overload)(*there.args, **there.kwargs)
    return tree_map(result, lambda x: x.to(HOST) if isinstance(x, torch.Tensor) else x)


def _judge_exception(case: Case, what: ExceptionInfo, device: str) -> Verdict:
    """The verdict on a case at which a process raised: none of the backend, if eager PyTorch refuses the call too. What
    cannot be traced for a device has no kernel there.
    """
    result = exception_verdict(case, what)
    if what.phase == "tracing it" and device != HOST:
        untraced = Verdict(
            case.id, "not run", "raises", f"PyTorch {torch.__version__} cannot trace this call on {device}. {what.text}"
        )
        return _eager_refuses(case, device) or _eager_refuses(case) or untraced
    return result if result.status != "fail" else _eager_refuses(case) or result


def _eager_refuses(case: Case, device: str = HOST) -> Verdict | None:
    """If eager PyTorch refuses the case's first call there."""
    if not has_eager(device):
        return None
    try:
        _eager(case, draw_inputs(case, 0), device)
    except Exception as e:
        text = str(e).strip().partition("\n")[0][:300]
        where = "" if device == HOST else f" on {device}"
        return Verdict(
            case.id,
            "not run",
            "raises",
            f"PyTorch {torch.__version__} itself does not do this call{where}. {type(e).__name__}: {text}",
        )
    return None


def _judge_program(
    case: Case, case_result: CaseResult, file: str, device: str, clock: Clock, tell: ReportPhase
) -> Verdict:
    if case_result.exception is not None:
        return exception_verdict(case, case_result.exception)
    if not case_result.claimed:
        return Verdict(case.id, "not claimed", "placement", case_result.refusals)
    tell(f"judging {case.id}")
    with clock.at("judging"):
        where = device if has_eager(device) else HOST
        observed = Observation.load(Path(file))
        verdict: Verdict = package_of(case.kind).judge(case, observed, where)
    parts = {} if observed.parts is None else {PARTS: observed.parts}
    return replace(verdict, figures={**verdict.figures, **parts})


def _fatal(verdict: Verdict, device: str) -> Verdict:
    """The verdict on a program at which eager PyTorch lost the device: no later result can be compared."""
    reason = f"What eager PyTorch raises there ends all that a process has on {device}."
    return replace(verdict, status="not run", oracle="contract", sentence=reason, clause="", figures={})


def _is_deterministic(case: Case) -> bool:
    """True if the same arguments must give the same bits.

    False for operators that draw random numbers or return uninitialized memory. False also for scans and for operators
    that add several elements to one place, if a clause leaves the order of the additions open. A clause leaves the
    order of a reduction open too, but the order must not change from call to call.
    """
    member = MEMBERS.get(case.op)
    random = torch.Tag.nondeterministic_seeded in getattr(overload(case.overload), "tags", ())
    if random or member is None:
        return not random
    scans = "scan" in member.tags and any(b.ulps != 0 for b in member.budget.values())
    return is_deterministic(member) and not scans and "nondeterministic_bitwise" not in member.tags


def _judge_invalid_call(case: Case, case_result: CaseResult) -> Verdict:
    if case_result.faults:
        return Verdict(
            case.id,
            "fail",
            "contract",
            " ".join(f.sentence for f in case_result.faults),
            _clause(case),
            case_result.faults[0].figures,
        )
    if case_result.exception is None:
        if not case_result.claimed:
            return Verdict(case.id, "not claimed", "placement", case_result.refusals)
        return Verdict(
            case.id,
            "fail",
            "precondition",
            "It gave values for a call that breaks a precondition, and did not raise.",
            _clause(case),
        )
    if case_result.exception.memory:
        return exception_verdict(case, case_result.exception)
    return Verdict(case.id, "pass", "precondition")


def _clause(case: Case) -> str:
    return case.clauses[0] if len(case.clauses) == 1 else ""


def exception_verdict(case: Case, what: ExceptionInfo) -> Verdict:
    """The verdict on a case that ended in an exception."""
    status = "harness error" if what.phase in OURS else "resource" if what.memory else "fail"
    sentence = f"It raised while {what.phase}: {what.text}"
    if status == "harness error":
        sentence = f"The suite itself raised while {what.phase}, which says nothing of the backend: {what.text}"
    return Verdict(case.id, status, "raises", sentence, attribution.of_exception(what))  # type: ignore[arg-type]
