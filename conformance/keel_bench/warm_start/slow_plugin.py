"""A backend whose compiler takes long, in ten processes: the first one compiles, the others load what it kept.

The compiler sleeps, and runs the operators of PyTorch.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import fx

from keel_conformance.models.model_case import ModelCase
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, failed, within
from .first_step import COMPILED, FirstStep
from .second_process import different, run_each

SECONDS, TINY_SECONDS = 60.0, 1.0
"""How long the compiler takes for a graph, and on the scale "tiny"."""
PROCESSES = 10


def jobs(chosen: Selection) -> list[Job]:
    """One job."""
    return [chosen.job("warm-plugin", "mlp", "inference", compiler="sleeper", rounds=PROCESSES)]


def measure(job: Job) -> dict[str, Any]:
    """How many ``processes`` there were, how many graphs they ``compiled``, the elapsed ``seconds`` of each to its
    first result, and what is ``different`` in any process from the first one.
    """
    arguments = partial(sleeping, TINY_SECONDS if job.scale == "tiny" else SECONDS)
    names = [f"{k + 1}" for k in range(job.rounds)]
    rows = run_each([FirstStep(name, mlp, job.mode, arguments, job.threads) for name in names])
    first, *others = rows.values()
    return {
        "processes": len(rows),
        "compiled": sum(graph["result"] == COMPILED for row in rows.values() for graph in row["graphs"]),
        "seconds": [row["seconds"] for row in rows.values()],
        "different": sorted({name for other in others for name in different(first["left"], other["left"])}),
    }


def mlp() -> ModelCase:
    """Two layers with random weights."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).eval()
    return ModelCase("mlp", model, (torch.randn(8, 64),), {}, {}, torch.sum)


def sleeping(seconds: float) -> Mapping[str, Any]:
    """The arguments of ``torch.compile`` for a backend whose compiler takes this many seconds."""
    import keel  # a process imports Keel in its first call

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        time.sleep(seconds)
        return program(gm)

    backend = keel.Backend(
        name="sleeper",
        device="cpu",
        supports=keel.Support((keel.Rule(ops=("*",)),)),
        compile=compile,
        fingerprint=lambda: "sleeper 1",
        serialize=lambda run: pickle.dumps(run.gm),
        deserialize=lambda data: program(pickle.loads(data)),
    )
    return {"backend": "keel", "dynamic": False, "options": {"backends": [backend, "eager"]}}


def program(gm: fx.GraphModule) -> Callable[..., Any]:
    """A function that runs the graph, which is its attribute ``gm``."""

    def run(*args: Any) -> Any:
        return gm(*args)

    run.gm = gm  # type: ignore[attr-defined]
    return run


def bars(results: Mapping[Job, Outcome]) -> Iterator[Criterion]:
    for job, outcome in results.items():
        if (row := outcome.row) is None:
            yield failed(job, outcome, "it runs")
            continue
        first, *others = row["seconds"]
        note = f"first result after {first:.1f} s, then after {min(others):.1f} to {max(others):.1f} s"
        name = f"{job.title}: graphs compiled in {row['processes']} processes"
        yield Criterion(name, row["compiled"], "1", row["compiled"] == 1, note)
        yield within(f"{job.title}: results that differ in a bit", len(row["different"]), 0)
