"""``keel bench``: the command line of the bench."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from keel_conformance.cli_options import AtOnce, Json, Resume, Retry, TimeLimit, choose, match_patterns
from keel_conformance.models import NAMES
from keel_conformance.workers.command_run import running
from keel_conformance.workers.pool import Outcome
from keel_conformance.workers.spawn import forked, fresh

from .calibrate import write
from .jobs import BATCHES, PRECISIONS, Job, Selection
from .suites import PARTS, SUITES, bars, plan
from .training_step import MODES
from .worker import environment, work

TIME_LIMIT = 1800.0  # seconds, for one job
WARM = "keel_bench.zoo.warm"
WARM_FOR_DEVICES = "keel_bench.zoo.warm_for_devices"
LAST_LINES = 8  # of what a job printed before it failed

app = typer.Typer(add_completion=False)


Suites = Annotated[str, typer.Option(help=f"Which set of bars: {', '.join(SUITES)}.")]
Parts = Annotated[list[str] | None, typer.Option(help=f"Only this part; repeatable: {', '.join(PARTS)}.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Only this model; repeatable: {', '.join(NAMES)}; what fits this pattern, of the zoo, cpu and gpu."
    ),
]
Modes = Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")]
Precisions = Annotated[
    list[str] | None,
    typer.Option(help=f"Only this precision; repeatable: {', '.join(PRECISIONS)} (suites cpu and gpu)."),
]
Batches = Annotated[
    list[str] | None, typer.Option(help=f"Only this batch; repeatable: {', '.join(BATCHES)} (suites cpu and gpu).")
]
BackendName = Annotated[
    str | None,
    typer.Option(
        help="The backend to measure: cpp, in the suite gpu triton, in the suite distributed those that Keel chooses."
        " In the line eager and inductor measure those."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="Where models live: cpu, or cuda as in the suite gpu (of others accuracy, run, zoo-models, zoo-samples)."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of PyTorch and OpenMP: 1, and 2 in the suite cpu; compile time is always one."),
]
Scale = Annotated[str, typer.Option(help="line: published widths, full counts. tiny: to try things out.")]
Rounds = Annotated[int, typer.Option(min=1, help="Draws of weights for errors; tens of timings for run times.")]
SamplesOfEach = Annotated[int, typer.Option(min=1, help="How many samples of each OpInfo, spread evenly (zoo).")]
Seed = Annotated[int, typer.Option(help="Draws other defects (debug).")]
Calibrate = Annotated[
    Path | None,
    typer.Option(help="Measure no bars, but the data sheets of the backends (a,b,c), and write them to this file."),
]


@app.callback(invoke_without_command=True)
def bench(
    suite: Suites = "line",
    json: Json = None,
    part: Parts = None,
    model: Models = None,
    mode: Modes = None,
    precision: Precisions = None,
    batch: Batches = None,
    backend: BackendName = None,
    scale: Scale = "line",
    rounds: Rounds = 3,
    samples: SamplesOfEach = 2,
    seed: Seed = 33,
    threads: Threads = None,
    device: Device = None,
    calibrate: Calibrate = None,
    at_once: AtOnce = 1,
    resume: Resume = False,
    retry: Retry = False,
    time_limit: TimeLimit = TIME_LIMIT,
) -> None:
    """Measure the promises beside eager PyTorch and Inductor. Exits with 1 if one falls short.

    Times are taken one by one, however many processes there are.
    """
    of = SUITES[choose("suite", [suite], tuple(SUITES))[0]]
    device = _known(device or of.device)
    backend, threads = backend or of.backend, threads or of.threads
    if calibrate is not None:
        with Console(stderr=True).status("Calibrating") as status:
            sheets = write(
                calibrate,
                backend.split(","),
                device,
                threads,
                lambda number, title: status.update(f"Calibrating: probe {number}, {title}"),
            )
        for name, sheet in sheets.items():
            typer.echo(f"{name}  {sheet}")
        return
    programs = match_patterns(of.programs(), model) if of.patterns else choose("model", model, of.programs())
    modes, precisions = choose("mode", mode, MODES), choose("precision", precision, PRECISIONS)
    batches = choose("batch", batch, BATCHES)
    chosen = Selection(
        tuple(programs), modes, backend, scale, rounds, threads, device, samples, precisions, batches, seed
    )
    todo = plan(choose("part", part, tuple(of.parts)), chosen)
    with (
        running(json, Job, _row, resume=resume, retry=retry) as run,
        TemporaryDirectory(prefix="keel-bench-") as caches,
    ):
        warm = WARM if chosen.device == "cpu" else WARM_FOR_DEVICES
        start = forked(work, warm) if of.forked else fresh(work, partial(environment, Path(caches)))
        outcomes = run.measure(
            "bench", todo, start, _outcome_text, at_once=at_once, time_limit=time_limit, last_lines=LAST_LINES
        )
    run.finish(bars(outcomes), rows=[{**vars(job), **outcome.as_json()} for job, outcome in outcomes.items()])


def _known(device: str) -> str:
    """The name of a device that PyTorch knows. Raises typer.BadParameter for others. The device is not used: a process
    that has used a GPU cannot fork.
    """
    try:
        torch.device(device)
    except RuntimeError as e:
        raise typer.BadParameter(f"PyTorch knows no device {device!r}: {str(e).partition(chr(10))[0]}") from None
    return device


def _row(job: Job, row: Any) -> Any:
    return row


def _outcome_text(job: Job, outcome: Outcome) -> str:
    return f"{job.title}  {outcome.seconds:.0f} s  {outcome.failure}"
