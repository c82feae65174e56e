"""The ways in which each program of the zoo runs, and what may come of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from keel_conformance.report import Criterion, join_names
from keel_conformance.workers.pool import Outcome

from ..compilers import EAGER
from ..jobs import Job

SIZES = ("static", "dynamic")
"""How ``torch.compile`` treats sizes: ``dynamic=False`` or ``dynamic=True``."""

HOLDS, WRONG, RAISED, NOT_EAGER, NOT_AOT, UNJUDGED = (
    "holds",
    "wrong",
    "raised",
    "eager cannot",
    "aot_eager cannot",
    "unjudged",
)
"""What may come of a run: its results hold; they are wrong; it raises where ``aot_eager`` runs; eager PyTorch raises;
``aot_eager`` raises, too; eager PyTorch's own results are not the same twice, or have no reference in float64."""


def keel(fn: Callable[..., Any], job: Job) -> Callable[..., Any]:
    """``fn`` compiled by the job's backend, and eager PyTorch for what that does not take."""
    options: dict[str, Any] = {"backends": [job.compiler, EAGER]}
    return torch.compile(fn, backend="keel", dynamic=job.along == "dynamic", options=options)


def aot_eager(fn: Callable[..., Any], job: Job) -> Callable[..., Any]:
    return torch.compile(fn, backend="aot_eager", dynamic=job.along == "dynamic")


def bars(what: str, results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    """Nothing wrong, nothing that raises where ``aot_eager`` runs; and what nobody can run, by name."""
    if not results:
        return
    ends: dict[str, list[str]] = {end: [] for end in (HOLDS, WRONG, RAISED, NOT_EAGER, NOT_AOT, UNJUDGED)}
    died = []
    for job, outcome in results.items():
        if outcome.row is None:
            died.append(f"{_title(job)}: {outcome.failure}")
            continue
        for end, runs in outcome.row["ends"].items():
            ends[end] += [f"{_title(job)} {run}" for run in runs]
    yield Criterion(f"{what}: runs that hold", len(ends[HOLDS]), "shown", None, _by_way(results))
    for end, title in ((WRONG, "wrong"), (RAISED, "raised where aot_eager runs")):
        yield Criterion(f"{what}: {title}", len(ends[end]), "0", not ends[end], join_names(ends[end], 12))
    yield Criterion(f"{what}: processes that died or took too long", len(died), "0", not died, join_names(died, 12))
    for end in (NOT_EAGER, NOT_AOT, UNJUDGED):
        yield Criterion(f"{what}: {end}", len(ends[end]), "shown", None, join_names(sorted(set(_names(ends[end]))), 40))


def _title(job: Job) -> str:
    return f"{job.model} {job.mode} {job.along}"


def _names(runs: Iterable[str]) -> list[str]:
    return [run.partition(" ")[0] for run in runs]


def _by_way(results: Mapping[Job, Outcome]) -> str:
    held = Counter[str]()
    for job, outcome in results.items():
        if outcome.row is not None:
            held[f"{job.mode} {job.along}"] += len(outcome.row["ends"].get(HOLDS, ()))
    return ", ".join(f"{way}: {count}" for way, count in sorted(held.items()))
