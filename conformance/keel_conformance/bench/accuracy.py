"""Are outputs, gradients and updated buffers as near to float64 as eager PyTorch's, and who computed them?"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..models import ModelCase, build
from .compilers import BASELINES, compiled
from .errors import TIMES, Comparison, compare, judge
from .jobs import Bar, Job, Outcome, Selection, failed
from .placement import EXPECTED_IN_EAGER, graphs, left_to_eager, recorded
from .step import Step, leavings, prepare, reference, run

# Under autocast two models stand for the rest: one of matrix products, one of convolutions.
IN_BF16 = ("bert", "resnet18")


def jobs(chosen: Selection) -> list[Job]:
    return [Job("accuracy", model, chosen.backend, mode, precision, chosen.scale, rounds=chosen.rounds,
                threads=chosen.threads)
            for model in chosen.models for mode in chosen.modes
            for precision in (("fp32", "bf16") if model in IN_BF16 else ("fp32",))]


def measure(job: Job) -> dict[str, Any]:
    """Compiles once, then takes ``job.rounds`` draws of weights and inputs."""
    step = job.step
    compiled_case, eager_case = (prepare(step, build(job.model, scale=job.scale)) for _ in range(2))
    forward = compiled(compiled_case.model, job.compiler)
    draws: list[dict[str, Comparison]] = []
    with recorded(job.compiler) as dumps:
        for seed in range(job.rounds):
            drawn = build(job.model, scale=job.scale, seed=seed)
            left = [leave(step, redraw(case, drawn), f) for case, f in
                    ((compiled_case, forward), (eager_case, eager_case.model))]
            draws.append(compare(left[0], left[1], reference(step, drawn)))
        in_eager, placed = left_to_eager(dumps), graphs(dumps)
    if job.compiler not in BASELINES and not placed:
        raise RuntimeError(f"{job.title} compiled no graph: what was compared is eager PyTorch with itself.")
    verdicts = judge(draws)
    return {
        "tensors": len(verdicts),
        "worst": verdicts[0].times,
        "worst_tensor": verdicts[0].name,
        "over": [f"{v.name} {v.times:.2f}" for v in verdicts if not v.holds],
        "classes": [v.name for v in verdicts if not v.same_classes],
        "left_to_eager": in_eager,
    }


def redraw(case: ModelCase, drawn: ModelCase) -> ModelCase:
    """``case`` with the weights, buffers and inputs of ``drawn``, written in place: what is compiled stays compiled."""
    case.model.load_state_dict(drawn.model.state_dict())
    case.model.zero_grad(set_to_none=True)
    return ModelCase(case.name, case.model, drawn.args, drawn.kwargs, drawn.targets, drawn.loss)


def leave(step: Step, case: ModelCase, forward: Any) -> dict[str, Any]:
    left = leavings(step, case, run(step, case, forward))
    return {name: t.clone() for name, t in left.items()}  # buffers and gradients change with the next draw


def bars(results: Mapping[Job, Outcome]) -> Iterable[Bar]:
    for job, outcome in results.items():
        if (figures := outcome.figures) is None:
            yield failed(job, outcome, f"<= {TIMES:g} x eager's error")
            continue
        over, classes = figures["over"], figures["classes"]
        note = f"{len(over)} of {figures['tensors']} tensors: {', '.join(over[:3])}"
        note = note if over else figures["worst_tensor"]
        yield Bar(f"{job.title}: error", figures["worst"], f"<= {TIMES:g} x eager's error", not over, note)
        yield Bar(f"{job.title}: element classes", len(classes), "0 tensors differ", not classes,
                  ", ".join(classes[:3]))
        yield of_fallbacks(job, figures["left_to_eager"])


def of_fallbacks(job: Job, ops: Mapping[str, int]) -> Bar:
    """Parts that ran in eager PyTorch, by operator; only those with a stated reason may."""
    unexpected = sorted(op for op in ops if op not in EXPECTED_IN_EAGER)
    note = ", ".join(f"{op} x{n}" for op, n in sorted(ops.items()))
    return Bar(f"{job.title}: left to eager", len(unexpected), "0 unexpected operators", not unexpected, note)
