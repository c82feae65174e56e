"""Whole models on several backends beside each of them alone: never worse, and where a mixture is the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keel import Backend
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, failed, within
from ..run_time import geometric_mean
from .cost_sheets import absent, backends
from .timing import ratio, timed

ALL = {"cpu": ("cpp", "inductor", "eager"), "cuda": ("triton", "cpp", "eager")}
"""Backends of the models that must not become slower."""
MIXTURES = {"cpu": (("cpp", "inductor", "eager"), ("cpp", "openvino", "eager")), "cuda": (("triton", "cpp", "eager"),)}
WORTH_MIXING = ("bert", "resnet18", "mobilenetv3")
"""Models that are tried on each mixture."""
WORST = 1.02
TOGETHER, BY_COST = "together", "by cost"
"""The rows of all backends: as they are placed in the end, and as data sheets alone would have it."""


def never_worse_jobs(chosen: Selection) -> list[Job]:
    return [
        _job("never-worse", model, ALL[chosen.device], mode, chosen) for model in chosen.models for mode in chosen.modes
    ]


def mixture_jobs(chosen: Selection) -> list[Job]:
    return [
        _job("mixtures", model, names, "inference", chosen)
        for names in MIXTURES[chosen.device]
        for model in WORTH_MIXING
        if model in chosen.models
    ]


def _job(part: str, model: str, names: Sequence[str], mode: str, chosen: Selection) -> Job:
    return chosen.job(part, model, mode, compiler="+".join(names))


def measure(job: Job) -> dict[str, Any]:
    """Each backend alone, and all by cost."""
    if why := absent(job.compiler.split("+")):
        return {TOGETHER: {"why": why}}
    result = backends(job.compiler.split("+"), job.device)
    lists: dict[str, Sequence[Backend]] = {b.name: [b] for b in result}
    return timed(job, {**lists, TOGETHER: result})


def measure_tried(job: Job) -> dict[str, Any]:
    """Each backend alone, all by cost, and all as the first step finds to be fastest."""
    result = backends(job.compiler.split("+"), job.device)
    lists: dict[str, Sequence[Backend]] = {b.name: [b] for b in result}
    return timed(job, {**lists, BY_COST: result, TOGETHER: result}, measured=(TOGETHER,))


# -- bars --------------------------------------------------------------------------------------------------------------


def never_worse_bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if outcome.row is None or outcome.row[TOGETHER]["why"]:
            yield failed(
                job, outcome if outcome.row is None else Outcome(None, outcome.row[TOGETHER]["why"]), f"<= {WORST}"
            )
            continue
        row = outcome.row
        by_cost = BY_COST if BY_COST in row and not row[BY_COST]["why"] else TOGETHER
        times, which = _ratio_to_best(row, "predicted", by_cost)
        yield within(
            f"{job.title}: predicted time / best single backend's",
            times,
            WORST,
            f"{which} alone {_ms(row[which]['predicted'])}; {_predicted_and_measured(row, by_cost)}",
        )
        times, which = _ratio_to_best(row, "seconds")
        yield within(
            f"{job.title}: measured time / best single backend's",
            times,
            WORST,
            f"{which} alone {_ms(row[which]['seconds'])}; {_placed(row)}",
        )


def mixture_bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    """A mixture is the fastest, or its note says why not."""
    for job, outcome in results.items():
        target = "< 1, or the reason"
        if outcome.row is None or outcome.row[TOGETHER]["why"]:
            yield failed(job, outcome if outcome.row is None else Outcome(None, outcome.row[TOGETHER]["why"]), target)
            continue
        times, which = _ratio_to_best(outcome.row, "seconds")
        why = reason(outcome.row)
        yield Criterion(
            f"{job.title}: measured time / fastest single backend's",
            times,
            target,
            times < 1 or bool(why),
            f"{which} alone {_ms(outcome.row[which]['seconds'])}; {_placed(outcome.row)}"
            + (f"; {why}" if times >= 1 and why else ""),
        )


def reason(row: Mapping[str, Any]) -> str:
    """Why a mixture is not faster than a backend alone; empty if nothing that was measured says so."""
    together = row[TOGETHER]
    if len(together["owners"]) == 1:
        owner = together["owners"][0]
        return f"no mixture is predicted to be faster than {owner} alone, which therefore has all"
    _, which = _ratio_to_best(row, "seconds")
    alone = row[which]["predicted"]
    if together["predicted"] > 0.9 * alone:
        return f"it is predicted to gain {100 * (1 - together['predicted'] / alone):.2g} %, which noise hides"
    return ""


def _ratio_to_best(row: Mapping[str, Any], what: str, placed: str = TOGETHER) -> tuple[float, str]:
    """How many times as long a placement takes as the best backend alone, and which that is.

    Where the placement is one backend's, the two are the same program, and both of its measurements count.
    """
    alone = {name: each for name, each in row.items() if name not in (TOGETHER, BY_COST) and not each["why"]}
    own, owners = [row[placed]], row[placed]["owners"]
    if len(owners) == 1 and owners[0] in alone and _calls(own[0]) == _calls(alone[owners[0]]):
        own.append(alone[owners[0]])
    which = min(alone, key=lambda name: alone[name][what], default="")
    if not which:
        return 0.0, placed
    if what != "seconds":
        return own[-1][what] / alone[which][what], which
    return max(
        (1.0 if each in own else geometric_mean([ratio(o, each) for o in own]), name) for name, each in alone.items()
    )


def _calls(each: Mapping[str, Any]) -> list[int]:
    return sorted(part["calls"] for part in each["parts"])


def _placed(row: Mapping[str, Any], placed: str = TOGETHER) -> str:
    refused = "".join(f"; not on {name} alone: {each['why']}" for name, each in row.items() if each["why"])
    return f"{placed} {_ms(row[placed]['seconds'])}, {_shares(row[placed])}{refused}"


def _predicted_and_measured(row: Mapping[str, Any], placed: str) -> str:
    """What a placement by cost is predicted to take, and takes."""
    times, which = _ratio_to_best(row, "seconds", placed)
    return (
        f"{placed} {_ms(row[placed]['predicted'])}, {_shares(row[placed])}; "
        f"measured {_ms(row[placed]['seconds'])}, {times:.3g} times {which}'s"
    )


def _shares(each: Mapping[str, Any]) -> str:
    parts = each["parts"]
    calls = {owner: sum(p["calls"] for p in parts if p["owner"] == owner) for owner in each["owners"]}
    return f"{len(parts)} parts, " + " and ".join(f"{count} calls on {owner}" for owner, count in calls.items())


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
