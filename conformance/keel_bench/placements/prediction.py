"""What parts are predicted to take after calibration, beside what they take: the order of the two should agree."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from keel import Backend, Call, Refusal
from keel.testing import refusal
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, beyond, failed
from .cost_sheets import backends
from .timing import timed

OVER = {"cpu": ("cpp", "eager"), "cuda": ("triton", "eager")}
DRAWS = 2
"""Times that operators are withheld from the first backends by lot, so that graphs fall into parts of all sizes."""
WITHHELD = 0.3
RANK = 0.9


def jobs(chosen: Selection) -> list[Job]:
    return [
        chosen.job("prediction", model, mode, compiler="+".join(OVER[chosen.device]))
        for model in chosen.models
        for mode in chosen.modes
    ]


def measure(job: Job) -> dict[str, Any]:
    used = backends(job.compiler.split("+"), job.device)
    lists: dict[str, Sequence[Backend]] = {b.name: [b] for b in used}
    lists |= {f"draw {i}": [*(withheld(b, f"{job.model} {i}") for b in used[:-1]), used[-1]] for i in range(DRAWS)}
    return timed(job, lists)


def withheld(backend: Backend, seed: str) -> Backend:
    """The backend, which refuses some operators more."""

    def refuses(call: Call) -> Refusal | None:
        if random.Random(f"{seed} {call.name}").random() < WITHHELD:
            return Refusal(f"{call.name} is withheld.")
        return refusal(backend, call)

    return replace(backend, supports=refuses)


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    parts: list[dict[str, Any]] = []
    for job, outcome in results.items():
        if outcome.row is None:
            yield failed(job, outcome, "measured")
            continue
        parts += [part for each in outcome.row.values() if not each["why"] for part in each["parts"]]
    if len(parts) < 3:
        return
    yield beyond(
        "prediction: rank correlation of predicted and measured part times",
        rank(parts),
        RANK,
        f"{len(parts)} parts; {_off(parts)}",
    )
    for owner in sorted({part["owner"] for part in parts}):
        own = [part for part in parts if part["owner"] == owner]
        yield Criterion(f"prediction: the same on {owner}", rank(own), "shown", None, f"{len(own)} parts; {_off(own)}")


def rank(parts: Sequence[dict[str, Any]]) -> float:
    """Spearman's coefficient (1904)."""
    from scipy.stats import spearmanr

    return float(spearmanr([p["predicted"] for p in parts], [p["seconds"] for p in parts]).statistic)


def _off(parts: Sequence[dict[str, Any]]) -> str:
    within = sum(p["predicted"] / 2 <= p["seconds"] <= 2 * p["predicted"] for p in parts)
    total = sum(p["predicted"] for p in parts) / sum(p["seconds"] for p in parts)
    return f"{100 * within / len(parts):.0f} % within a factor of two, the sum predicted {total:.2f} of the measured"
