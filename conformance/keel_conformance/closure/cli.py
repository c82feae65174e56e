"""``keel spec closure``: the command that proves that the operator set is closed, typed and accurate."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from keel import KeelError, universe

from ..bench import report
from ..bench.cli import picked
from . import bars as promised
from . import cost, record, zoo
from .jobs import MODES, Job, Outcome, Outcomes, Row
from .pool import run_all
from .work import work

UNIVERSES = {"opinfo": "OpInfos", "zoo": "models"}
PARTS = ("members", "closure", "time")
WARM = "keel_conformance.closure.warm"
TIME_LIMIT = 1800.0  # seconds, for one OpInfo

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def closure(
    universe: Annotated[str, typer.Option(help=f"What is traced: {', '.join(UNIVERSES)}.")] = "opinfo",
    mode: Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")] = None,
    dynamic: Annotated[bool | None, typer.Option("--dynamic/--static", help="Only with symbolic, or only with known "
                                                 "sizes.")] = None,
    samples: Annotated[str, typer.Option(help="How many of each OpInfo's, spread evenly: a number, or all.")] = "all",
    op: Annotated[list[str] | None, typer.Option(help="Only OpInfos (models) whose name fits this pattern; "
                                                 "repeatable.")] = None,
    part: Annotated[list[str] | None, typer.Option(help=f"Only this part; repeatable: {', '.join(PARTS)}.")] = None,
    numbers: Annotated[bool, typer.Option(help="Compare with eager PyTorch and float64.")] = True,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = os.cpu_count() or 1,
    json: Annotated[Path | None, typer.Option(help="Write bars and rows to this file.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run whose log stands beside the --json file.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds that one OpInfo may take.")] = TIME_LIMIT,
) -> None:
    """Does every program end in the operator set? Exits with 1 if a bar falls short."""
    what = UNIVERSES[picked("universe", [universe], tuple(UNIVERSES))[0]]
    parts, start = picked("part", part, PARTS), time.monotonic()
    settings = [(m, d) for d in (False, True) if dynamic in (None, d) for m in picked("mode", mode, MODES)]
    todo = planned(universe, settings, _count(samples), op or ["*"], numbers) if "closure" in parts else []
    console = Console(width=None if os.isatty(1) else 200)
    if json is not None and not resume:
        record.log_of(json).unlink(missing_ok=True)
    outcomes = _run(console, todo, jobs, time_limit, json)
    times = _run(console, cost.jobs() if "time" in parts else [], 1, time_limit, json)
    bars = list(promised.of_members()) if "members" in parts else []
    for setting in dict.fromkeys(job.setting for job in todo):
        bars += promised.of_setting(setting, {j: o for j, o in outcomes.items() if j.setting == setting}, what)
    bars += cost.bars(times)
    _list_outside(console, outcomes)
    _list_untraced(console, outcomes)
    report.show(console, bars)
    if json is not None:
        record.write(json, bars, {**outcomes, **times}, time.monotonic() - start)
    if any(bar.holds is False for bar in bars):
        raise typer.Exit(1)


def planned(of: str, settings: Sequence[tuple[str, bool]], samples: int | None, patterns: Sequence[str],
            numbers: bool) -> list[Job]:
    """The jobs of all settings. Training is asked only of what promises gradients. Raises KeelError[bad-option]."""
    names = universe.names() if of == "opinfo" else tuple(zoo.BUILDERS)
    found = [n for n in names if any(fnmatchcase(n, p) for p in patterns)]
    if not found:
        raise KeelError("bad-option", f"Nothing is called {' or '.join(patterns)}.", do="* matches anything.")
    return [Job(of, name, mode, dynamic, samples, numbers and of == "opinfo")
            for mode, dynamic in settings for name in found
            if mode == "forward" or of == "zoo" or universe.supports_autograd(name)]


def _count(samples: str) -> int | None:
    if samples == "all":
        return None
    if not samples.isdecimal() or int(samples) == 0:
        raise typer.BadParameter(f"--samples {samples!r} is neither a number nor all.")
    return int(samples)


def _run(console: Console, todo: Sequence[Job], jobs: int, time_limit: float, json: Path | None) -> Outcomes:
    """Every job's outcome: what the log of ``json`` has already, and the rest measured, which goes into the log."""
    earlier = record.done(json) if json is not None else {}
    found = {job: earlier[job] for job in todo if job in earlier}
    todo_now = [job for job in todo if job not in found]
    if not todo_now:
        return found
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                  console=console) as progress:
        task = progress.add_task("closure", total=len(todo_now))
        for job, ended in run_all(todo_now, work, at_once=jobs, time_limit=time_limit, preload=WARM):
            found[job] = Outcome(ended.result, ended.failure, ended.doing, ended.seconds)
            if json is not None:
                record.append(json, job, found[job])
            if (trouble := _trouble(found[job])):
                progress.console.print(f"{job.title}: {trouble}", markup=False, highlight=False)
            progress.advance(task)
    return {job: found[job] for job in todo}


def _trouble(outcome: Outcome) -> str:
    """What is worth a line at once."""
    row = outcome.row
    if not isinstance(row, Row):
        return outcome.failure
    return " ".join([*(f"outside: {name}." for name in row.outside), *row.wrong, *row.mistyped, *row.inaccurate])


def _list_outside(console: Console, outcomes: Outcomes) -> None:
    rows = promised.outside(outcomes.items())
    if rows:
        console.print("\n[bold]What remains outside[/]")
    for name, by, why in rows:
        console.print(f"{name}, needed by {len(by)}: {promised.named(by)}\n  {why}", markup=False, highlight=False)


def _list_untraced(console: Console, outcomes: Outcomes) -> None:
    console.print("\n[bold]What PyTorch does not trace[/]")
    for job, outcome in outcomes.items():
        if outcome.row is None:
            console.print(f"{job.title}: {outcome.failure}", markup=False, highlight=False)
            continue
        for reason, example in outcome.row.untraced.items():
            share = "" if outcome.row.traced else ", and no other sample"
            console.print(f"{job.title}: {reason} ({example}{share})", markup=False, highlight=False)
