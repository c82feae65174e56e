"""Are outputs, gradients and updated buffers as near to float64 as eager PyTorch's, and who computed them?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keel_conformance.models import build
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from .accuracy_trial import AccuracyTrial
from .compilers import BASELINES, compiled
from .draws import measures
from .error_metrics import TIMES
from .fallbacks import EXPECTED_IN_EAGER, graphs, left_to_eager, recorded, troubles
from .jobs import Job, Selection, failed
from .training_step import prepare


def jobs(chosen: Selection) -> list[Job]:
    return chosen.jobs("accuracy")


def measure(job: Job) -> dict[str, Any]:
    """Compiles once, then takes ``job.rounds`` draws of weights and inputs."""
    step = job.step
    case = prepare(step, build(job.model, scale=job.scale, device=job.device))
    forward = compiled(case.model, job.compiler)
    drawn = measures(step, lambda seed: build(job.model, scale=job.scale, device=job.device, seed=seed))
    with troubles() as worked_around, recorded(job.compiler) as dumps:
        verdicts = AccuracyTrial(step, forward, case).judge(drawn, job.rounds)
        in_eager, placed = left_to_eager(dumps), graphs(dumps)
    if job.compiler not in BASELINES and not placed:
        raise RuntimeError(f"{job.title} compiled no graph: what was compared is eager PyTorch with itself.")
    return {
        "tensors": len(verdicts),
        "worst": verdicts[0].times,
        "worst_tensor": verdicts[0].name,
        "kinks": [f"{v.name} {v.jump:.2f}" for v in verdicts if v.kinks],
        "over": [f"{v.name} {v.farthest:.2f}" for v in verdicts if not v.holds],
        "classes": [v.name for v in verdicts if not v.same_classes],
        "left_to_eager": in_eager,
        "worked_around": worked_around,
    }


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if (figures := outcome.row) is None:
            yield failed(job, outcome, f"<= {TIMES:g} x eager's error")
            continue
        over, classes, kinks = figures["over"], figures["classes"], figures["kinks"]
        note = figures["worst_tensor"]
        if over:
            note = f"{len(over)} of {figures['tensors']} tensors: {', '.join(over[:3])}"
        if kinks:
            note += f"; {len(kinks)} at a kink, in multiples of the exact result's jump: {', '.join(kinks[:2])}"
        yield Criterion(f"{job.title}: error", figures["worst"], f"<= {TIMES:g} x eager's error", not over, note)
        yield Criterion(
            f"{job.title}: element classes", len(classes), "0 tensors differ", not classes, ", ".join(classes[:3])
        )
        yield of_fallbacks(job, figures["left_to_eager"], figures["worked_around"])


def of_fallbacks(job: Job, ops: Mapping[str, int], worked_around: Sequence[str]) -> Criterion:
    """What ran in eager PyTorch: operators by name, of which only those with a stated reason may, and parts that their
    backend took and could not compile.
    """
    unexpected = sorted(op for op in ops if op not in EXPECTED_IN_EAGER)
    note = ", ".join([*(f"{op} x{n}" for op, n in sorted(ops.items())), *worked_around])
    return Criterion(
        f"{job.title}: left to eager",
        len(unexpected) + len(worked_around),
        "0 but those with a reason",
        not unexpected and not worked_around,
        note,
    )
