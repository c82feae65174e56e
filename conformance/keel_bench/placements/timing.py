"""A model on several lists of backends: what each placement is predicted to take, and what it and its parts take.

Steps of all lists alternate in one process, which is pinned to as many cores as it has threads.  Seconds are those of
the process where it computes in one thread: what else the machine does hardly shows.  What shows still, another process
in the caches say, slows steps that follow each other alike: so lists are compared round by round (see :func:`ratio`).
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import fx

import keel
from keel import Backend, KeelError, placement
from keel.plugin import CompileContext
from keel_conformance.models import ModelCase, build

from ..jobs import Job
from ..run_time import WARM_UP, alone, finish, now
from ..training_step import Step, prepare, run
from ..uncertainty import predicted

STEPS = 7  # for parts, of which the fastest counts; in each round
STILL = 4
"""Steps that run the same parts. No plan that is autotuned gets this many turns in a row."""


@dataclass(eq=False)
class PartTime:
    """A part: its owner, its calls, what it is predicted to take, and the seconds of its fastest run."""

    owner: str
    calls: int
    predicted: float
    seconds: float = float("inf")


@dataclass
class Timed:
    """One list of backends: ``predicted`` seconds of its graphs, and those of its ``steps``.  ``why`` says why the
    model cannot run on it.  Parts are timed while one is ``watching``, and noted in ``ran`` each time they run; whole
    steps are timed while nobody is.
    """

    parts: list[PartTime] = field(default_factory=list)
    ran: list[PartTime] = field(default_factory=list)
    watching: bool = True
    predicted: float = 0.0
    steps: list[float] = field(default_factory=list)
    why: str = ""

    @property
    def owners(self) -> list[str]:
        return sorted({part.owner for part in self.parts})

    def as_json(self) -> dict[str, Any]:
        return {
            "predicted": self.predicted,
            "steps": self.steps,
            "why": self.why,
            "owners": self.owners,
            "seconds": statistics.median(self.steps) if self.steps else None,
            "parts": [vars(part) for part in self.parts],
        }


def ratio(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How many times as long the steps of one row take as those of another beside which they ran: the median over the
    rounds.
    """
    median: float = statistics.median(a / b for a, b in zip(one["steps"], other["steps"], strict=True))
    return median


def timed(
    job: Job, lists: Mapping[str, Sequence[Backend]], measured: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Every list, by its name.  A list of one backend stands for that backend alone: it does all or cannot run.  Those
    named in ``measured`` are placed by trying, the others by cost.
    """
    if job.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    step, result, runs = job.step, dict[str, Timed](), dict[str, Any]()
    torch.compiler.reset()
    for name, backends in lists.items():
        result[name] = Timed()
        case = prepare(step, build(job.model, scale=job.scale, device=job.device))
        run(step, case, case.model)  # PyTorch captures a model again after its first step has set something
        watched = [_watched(b, result[name], job.device) for b in backends]
        tries = name in measured
        forward = keel.compile(
            case.model,
            backends=watched,
            placement="measured" if tries else "cost",
            strict=len(watched) == 1,
            dynamic=False,
            fullgraph=True,
        )
        try:
            with alone() if tries else nullcontext():  # the first steps take times
                settle(partial(_step, step, case, forward), result[name], STILL if tries else 1)
            runs[name] = case, forward
        except Exception as raised:  # a backend that cannot, or a foreign compiler that fails
            result[name].why = _why(_root(raised))
    with alone():
        for i in range(WARM_UP + STEPS * (1 + job.rounds) if runs else 0):
            if i == WARM_UP:  # a graph that is captured meanwhile is another program
                for part in (part for each in result.values() for part in each.parts):
                    part.seconds = float("inf")
            turns = list(runs.items())
            random.Random(i).shuffle(turns)  # what ran before shows in the caches
            for name, (case, forward) in turns:
                result[name].watching = i < WARM_UP + STEPS
                prepare(step, case)
                finish(job.device)
                start = now(job.device)
                run(step, case, forward)
                finish(job.device)
                if not result[name].watching:
                    result[name].steps.append(now(job.device) - start)
    for each in result.values():
        each.parts[:] = [part for part in each.parts if part.seconds < float("inf")]  # others run no more
        each.predicted = sum(part.predicted for part in each.parts)
    return {name: each.as_json() for name, each in result.items()}


def _step(step: Step, case: ModelCase, forward: Callable[..., Any]) -> None:
    run(step, prepare(step, case), forward)


def settle(step: Callable[[], Any], timed: Timed, steps: int) -> None:
    """Runs steps until that many in a row have run the same parts."""
    before, same = list[PartTime](), 0
    while same < steps:
        timed.ran.clear()
        step()
        same, before = same + 1 if timed.ran == before else 1, list(timed.ran)


def _watched(backend: Backend, timed: Timed, device: str) -> Backend:
    """The backend, which notes what each of its parts is predicted to take, and what it takes."""

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        part = PartTime(backend.name, len(placement.call_graph_of(gm.graph).nodes), predicted(gm, backend))
        run = keel.testing.compile_part(backend, gm, ctx)
        timed.parts.append(part)

        def call(*args: Any) -> Any:
            if not timed.watching:
                return run(*args)
            timed.ran.append(part)
            finish(device)
            start = now(device)
            results = run(*args)
            finish(device)
            part.seconds = min(part.seconds, now(device) - start)
            return results

        return call

    return replace(backend, compile=compile)


def _why(raised: BaseException) -> str:
    """One line: what was not done, and the reasons."""
    what = str(raised).strip().partition("\n")[0] or type(raised).__name__
    reasons = (raised.reasons or {}) if isinstance(raised, KeelError) else {}
    return " ".join([what, *(f"{who}: {str(why).partition(chr(10))[0]}" for who, why in reasons.items())])


def _root(raised: BaseException) -> BaseException:
    """What Keel said, where PyTorch wraps it."""
    while not isinstance(raised, KeelError) and (inner := raised.__cause__ or getattr(raised, "inner_exception", None)):
        raised = inner
    return raised
