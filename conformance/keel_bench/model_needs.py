"""What each model of the zoo needs of a backend, measured: ``keel_conformance.levels`` derives its levels from it.

``python -m keel_bench.model_needs`` compiles every model once for inference and once for training, and writes the table
to the folder of the module that reads it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import keel
from keel import KeelError, documents
from keel_conformance.levels import level
from keel_conformance.levels.level_plan import judgeable
from keel_conformance.levels.needs import Needs, Recorder, read_needs, union
from keel_conformance.models import NAMES as LINE
from keel_conformance.workers.pool import Outcome, ReportPhase, WorkerPool
from keel_conformance.workers.spawn import forked

from .models import model_zoo
from .training_step import MODES, Step, prepare, run

LIMIT = 900.0
app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class Job:
    """A model of the zoo, and whether it is trained."""

    model: str
    mode: str


@dataclass(frozen=True)
class Row:
    """``needs`` as plain data."""

    needs: dict[str, Any]


def family(model: str) -> str:
    """``line`` for the models that every backend is expected to run first; ``text`` and ``vision`` for the others."""
    return "line" if model in LINE else "text" if model in model_zoo.TEXT else "vision"


def work(job: Job, tell: ReportPhase) -> Row:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tell("building the model")
    torch.compiler.reset()
    recorder, step = Recorder(), Step(job.mode)
    case = prepare(step, model_zoo.build(job.model))
    tell("compiling it")
    run(step, case, keel.compile(case.model, backends=recorder.backends))
    return Row(recorder.needs.as_json())


def measured(todo: Sequence[Job], at_once: int) -> Iterator[tuple[Job, Outcome]]:
    """Each job with its outcome. A process takes one job after another, because starting it takes longest."""
    left = list(reversed(todo))
    with closing(WorkerPool(forked(work), at_once)) as pool:
        while left or pool.busy:
            while left and pool.free:
                pool.submit(left.pop(), LIMIT)
            yield from pool.poll(1.0)


def table(rows: dict[Job, Needs], failed: dict[Job, str]) -> dict[str, Any]:
    """The needs of each family in each mode. What no case is about is listed, because it cannot be judged."""
    families: dict[str, Any] = {}
    caseless: set[str] = set()
    for name in ("line", "text", "vision"):
        for mode in MODES:
            models = sorted(job.model for job in rows if family(job.model) == name and job.mode == mode)
            needs = union(rows[Job(model, mode)] for model in models)
            judged, left = judgeable(needs)
            caseless |= {*left}
            families[f"{name} {mode}"] = {"models": models, **judged.as_json()}
    return {
        "torch": torch.__version__,
        "families": families,
        "caseless": sorted(caseless),
        "failed": {f"{job.model} {job.mode}": why for job, why in sorted(failed.items(), key=str)},
    }


@app.command()
def measure(
    models: Annotated[list[str] | None, typer.Argument(help="Models of the zoo; all, if none is named.")] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = level.FILE,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 1,
) -> None:
    """Measure what the models of the zoo need, and write the table from which levels are derived."""
    todo = [Job(model, mode) for mode in MODES for model in models or model_zoo.NAMES]
    rows: dict[Job, Needs] = {}
    failed: dict[Job, str] = {}
    for job, outcome in measured(todo, jobs):
        print(f"{job.model} {job.mode}: {outcome.failure or f'{outcome.seconds:.1f} s'}", flush=True)
        if outcome.row is None:
            failed[job] = outcome.failure[:300]
        else:
            rows[job] = read_needs(documents.Item(outcome.row.needs))
        documents.replace_file(out, f"{json.dumps(table(rows, failed), indent=1)}\n".encode())
    if not rows:
        raise KeelError("bad-option", "No model could be measured.", {str(asdict(j)): w for j, w in failed.items()})


if __name__ == "__main__":
    app()
