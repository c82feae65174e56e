"""``keel spec closure``: the command that proves that the operator set is closed, typed and accurate."""
from __future__ import annotations

import json as js
import os
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from keel import KeelError, universe

from ..bench import report
from ..bench.cli import picked
from ..bench.jobs import Bar
from . import bars as promised
from . import cost, zoo
from .jobs import MODES, Job, Outcome, Outcomes, Row
from .pool import run_all
from .work import work

UNIVERSES = {"opinfo": "OpInfos", "zoo": "models"}
PARTS = ("members", "closure", "time")
WARM = "keel_conformance.closure.warm"
TIME_LIMIT = 900.0  # seconds, for one OpInfo

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
    time_limit: Annotated[float, typer.Option(help="Seconds that one OpInfo may take.")] = TIME_LIMIT,
) -> None:
    """Does every program end in the operator set? Exits with 1 if a bar falls short."""
    what = UNIVERSES[picked("universe", [universe], tuple(UNIVERSES))[0]]
    parts, start = picked("part", part, PARTS), time.monotonic()
    settings = [(m, d) for d in (False, True) if dynamic in (None, d) for m in picked("mode", mode, MODES)]
    todo = planned(universe, settings, _count(samples), op or ["*"], numbers) if "closure" in parts else []
    console = Console(width=None if os.isatty(1) else 200)
    outcomes = _run(console, todo, jobs, time_limit)
    times = _run(console, cost.jobs() if "time" in parts else [], 1, time_limit)
    bars = list(promised.of_members()) if "members" in parts else []
    for setting in dict.fromkeys(job.setting for job in todo):
        bars += promised.of_setting(setting, {j: o for j, o in outcomes.items() if j.setting == setting}, what)
    bars += cost.bars(times)
    _list_outside(console, outcomes)
    _list_untraced(console, outcomes)
    report.show(console, bars)
    if json is not None:
        write(json, bars, outcomes, time.monotonic() - start)
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


def _run(console: Console, todo: Sequence[Job], jobs: int, time_limit: float) -> Outcomes:
    found: dict[Job, Outcome] = {}
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                  console=console) as progress:
        task = progress.add_task("closure", total=len(todo))
        for job, ended in run_all(todo, work, at_once=jobs, time_limit=time_limit, preload=WARM):
            found[job] = Outcome(ended.result, ended.failure, ended.doing, ended.seconds)
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


def write(path: Path, bars: Sequence[Bar], outcomes: Outcomes, seconds: float) -> None:
    """The bars with the facts of the machine, and a row for each job."""
    report.write(path, bars, seconds)
    record: dict[str, Any] = js.loads(path.read_text())
    record["rows"] = [{**vars(job), "failure": o.failure, "doing": o.doing, "elapsed": round(o.seconds, 2),
                       **(o.row.as_json() if o.row else {})} for job, o in outcomes.items()]
    path.write_text(js.dumps(record, indent=1) + "\n")
