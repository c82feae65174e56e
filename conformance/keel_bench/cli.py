"""``keel bench``: the command line of the bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from keel_conformance.cli_options import AtOnce, Json, Resume, Retry, TimeLimit, choose, match_patterns
from keel_conformance.models import NAMES
from keel_conformance.workers.command_run import running
from keel_conformance.workers.pool import Outcome
from keel_conformance.workers.spawn import forked, fresh

from .calibrate import write
from .jobs import Job, Selection
from .suite import PARTS, SUITES, bars, plan, programs_of_zoo
from .training_step import MODES
from .worker import environment, work

DEVICES = ("cpu", "cuda")
TIME_LIMIT = 1800.0  # seconds, for one job
WARM = "keel_bench.zoo.warm"
WARM_FOR_DEVICES = "keel_bench.zoo.warm_for_devices"
LAST_LINES = 8  # of what a job printed before it failed

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def bench(
    suite: Annotated[str, typer.Option(help=f"Which set of bars: {', '.join(SUITES)}.")] = "line",
    json: Json = None,
    part: Annotated[list[str] | None, typer.Option(help=f"Only this part; repeatable: {', '.join(PARTS)}.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this model; repeatable: {', '.join(NAMES)}; of the zoo what fits this pattern."),
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")] = None,
    backend: Annotated[str, typer.Option(help="The backend to measure; eager and inductor measure those two.")] = "cpp",
    scale: Annotated[str, typer.Option(help="line: published widths, full counts. tiny: to try things out.")] = "line",
    rounds: Annotated[int, typer.Option(min=1, help="Draws of weights for errors; tens of timings for run times.")] = 3,
    samples: Annotated[int, typer.Option(min=1, help="How many samples of each OpInfo, spread evenly (zoo).")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch and OpenMP; compile time is always one.")] = 1,
    device: Annotated[
        str, typer.Option(help="Where models live: cpu or cuda (accuracy, run, zoo-models and zoo-samples only).")
    ] = "cpu",
    calibrate: Annotated[
        Path | None,
        typer.Option(help="Measure no bars, but the data sheets of the backends (a,b,c), and write them to this file."),
    ] = None,
    at_once: AtOnce = 1,
    resume: Resume = False,
    retry: Retry = False,
    time_limit: TimeLimit = TIME_LIMIT,
) -> None:
    """Measure the promises beside eager PyTorch and Inductor. Exits with 1 if one falls short.

    Times are taken one by one, however many processes there are.
    """
    if calibrate is not None:
        where = choose("device", [device], DEVICES)[0]
        for name, sheet in write(calibrate, backend.split(","), where, threads).items():
            typer.echo(f"{name}  {sheet}")
        return
    parts = tuple(SUITES[choose("suite", [suite], tuple(SUITES))[0]])
    programs = match_patterns(programs_of_zoo(), model) if suite == "zoo" else choose("model", model, NAMES)
    chosen = Selection(
        tuple(programs),
        choose("mode", mode, MODES),
        backend,
        scale,
        rounds,
        threads,
        choose("device", [device], DEVICES)[0],
        samples,
    )
    todo = plan(choose("part", part, parts), chosen)
    with (
        running(json, Job, _row, resume=resume, retry=retry) as run,
        TemporaryDirectory(prefix="keel-bench-") as caches,
    ):
        warm = WARM if chosen.device == "cpu" else WARM_FOR_DEVICES
        start = fresh(work, partial(environment, Path(caches))) if suite != "zoo" else forked(work, warm)
        outcomes = run.measure(
            "bench", todo, start, _outcome_text, at_once=at_once, time_limit=time_limit, last_lines=LAST_LINES
        )
    run.finish(bars(outcomes), rows=[{**vars(job), **outcome.as_json()} for job, outcome in outcomes.items()])


def _row(job: Job, row: Any) -> Any:
    return row


def _outcome_text(job: Job, outcome: Outcome) -> str:
    return f"{job.title}  {outcome.seconds:.0f} s  {outcome.failure}"
