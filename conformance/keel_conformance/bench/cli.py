"""``keel bench``: the command line of the bench."""
from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..models import NAMES
from . import report
from .jobs import Job, Outcome, Selection
from .step import MODES
from .suite import PARTS, bars, plan
from .supervise import TIME_LIMIT, run_all

SUITES = ("line",)
DEVICES = ("cpu", "cuda")

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def bench(
    suite: Annotated[str, typer.Option(help=f"Which set of bars: {', '.join(SUITES)}.")] = "line",
    json: Annotated[Path | None, typer.Option(help="Write the bars to this file too.")] = None,
    part: Annotated[list[str] | None, typer.Option(help=f"Only this part; repeatable: {', '.join(PARTS)}.")] = None,
    model: Annotated[list[str] | None, typer.Option(help=f"Only this model; repeatable: {', '.join(NAMES)}.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")] = None,
    backend: Annotated[str, typer.Option(help="The backend to measure; eager and inductor measure those two.")] = "cpp",
    scale: Annotated[str, typer.Option(help="line: published widths. tiny: small ones, to try things out.")] = "line",
    rounds: Annotated[int, typer.Option(min=1, help="Draws of weights for errors; tens of timings for run times.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch and OpenMP; compile time is always one.")] = 1,
    device: Annotated[str, typer.Option(help="Where models live: cpu or cuda (accuracy and run only).")] = "cpu",
    at_once: Annotated[int, typer.Option(min=1, help="Measurements at a time; times are still taken one by one.")] = 1,
    time_limit: Annotated[float, typer.Option(help="Seconds that one measurement may take.")] = TIME_LIMIT,
) -> None:
    """Measure the promises beside eager PyTorch and Inductor. Exits with 1 if one falls short."""
    chosen = Selection(picked("model", model, NAMES), picked("mode", mode, MODES), backend, scale, rounds, threads,
                       picked("device", [device], DEVICES)[0])
    picked("suite", [suite], SUITES)
    todo = plan(picked("part", part, tuple(PARTS)), chosen)
    console, start = Console(width=None if os.isatty(1) else 200), time.monotonic()
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                  console=console) as progress:
        task = progress.add_task("bench", total=len(todo))

        def done(job: Job, outcome: Outcome) -> None:
            line = f"{job.title}  {outcome.seconds:.0f} s  {outcome.failure}"
            progress.console.print(line, markup=False, highlight=False)
            progress.advance(task)

        outcomes = run_all(todo, done, time_limit, at_once)
    found = bars(outcomes)
    report.show(console, found)
    if json is not None:
        report.write(json, found, time.monotonic() - start)
    if any(bar.holds is False for bar in found):
        raise typer.Exit(1)


def picked(what: str, names: list[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names asked for, all known ones if none was."""
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"there is no {what} {name!r}; there are {', '.join(known)}.")
    return tuple(names or known)
