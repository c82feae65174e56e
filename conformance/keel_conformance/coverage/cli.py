"""``keel spec coverage``: what a backend runs of the operator set, dtype by dtype, and over PyTorch's catalogue."""
from __future__ import annotations

import json as js
import os
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from keel import MEMBERS, KeelError, coverage, find, universe

from ..bench import report
from ..bench.cli import picked
from ..bench.jobs import Bar
from ..closure.pool import run_all
from . import bars as promised
from .jobs import MODES, TABLE, Job, Outcome, Outcomes, Row
from .measure import work

WARM = "keel_conformance.coverage.warm"
UNIVERSES = (TABLE, "opinfo")
TIME_LIMIT = 900.0  # seconds, for one OpInfo
MARKS = {"loops": "L", "extern": "x", "mixed": "m", "taken": "+", "refused": "-", "none": "."}

app = typer.Typer(add_completion=False)
Cells = Sequence[promised.Cell]


@app.callback(invoke_without_command=True)
def coverage_(
    backend: Annotated[str, typer.Option(help="The backend asked.")] = "cpp",
    universe: Annotated[str, typer.Option(help="table: the declarations, dtype by dtype; opinfo: PyTorch's catalogue, "
                                          "compiled and run.")] = TABLE,
    mode: Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")] = None,
    samples: Annotated[str, typer.Option(help="How many of each OpInfo's, spread evenly: a number, or all.")] = "all",
    op: Annotated[list[str] | None, typer.Option(help="Only names that fit this pattern; repeatable.")] = None,
    numbers: Annotated[bool, typer.Option(help="Build, run, and compare with eager PyTorch and float64.")] = True,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = os.cpu_count() or 1,
    json: Annotated[Path | None, typer.Option(help="Write bars and rows to this file.")] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds that one OpInfo may take.")] = TIME_LIMIT,
) -> None:
    """Does a backend run the operator set? Exits with 1 if a bar falls short."""
    start, console = time.monotonic(), Console(width=None if os.isatty(1) else 200)
    find(backend)
    table = picked("universe", [universe], UNIVERSES)[0] == TABLE
    todo = _rows(backend, op or ["*"]) if table else planned(backend, mode, _count(samples), op or ["*"], numbers)
    outcomes = _run(console, todo, jobs, time_limit)
    cells = [cell for o in outcomes.values() if isinstance(o.row, list) for cell in o.row]
    if table:
        show(console, cells)
        bars = list(promised.of_table(backend, cells, (j.name for j, o in outcomes.items() if o.row is None)))
    else:
        bars = [bar for m in dict.fromkeys(job.mode for job in todo)
                for bar in promised.of_mode(backend, m, {j: o for j, o in outcomes.items() if j.mode == m})]
        _list_left(console, outcomes)
    report.show(console, bars)
    if json is not None:
        write(json, bars, outcomes, time.monotonic() - start)
    if any(bar.holds is False for bar in bars):
        raise typer.Exit(1)


def _rows(backend: str, patterns: Sequence[str]) -> list[Job]:
    names = [op.name for op in MEMBERS.values() if op.kind == "primitive" and not op.tags & coverage.BEYOND]
    return [Job(backend, name, TABLE) for name in _fitting(names, patterns)]


def planned(backend: str, modes: Sequence[str] | None, samples: int | None, patterns: Sequence[str],
            numbers: bool) -> list[Job]:
    """The jobs of all modes. Training is asked only of what promises gradients. Raises KeelError[bad-option]."""
    names = _fitting(universe.names(), patterns)
    return [Job(backend, name, mode, samples, numbers) for mode in picked("mode", modes, MODES) for name in names
            if mode == "forward" or universe.supports_autograd(name)]


def _fitting(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    found = [n for n in names if any(fnmatchcase(n, p) for p in patterns)]
    if not found:
        raise KeelError("bad-option", f"Nothing is called {' or '.join(patterns)}.", do="* matches anything.")
    return found


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
        task = progress.add_task("coverage", total=len(todo))
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
    return " ".join([*(f"left: {name}." for name in row.left), *row.wrong, *row.inaccurate])


def show(console: Console, cells: Cells) -> None:
    """A line per operator, a column per dtype, by family; then the sentences of what is refused."""
    dtypes = list(dict.fromkeys(c["dtype"] for c in cells))
    for family in dict.fromkeys(c["family"] for c in cells):
        rows = {name: {c["dtype"]: MARKS[c["verdict"]] for c in cells if c["op"] == name}
                for name in dict.fromkeys(c["op"] for c in cells if c["family"] == family)}
        table = Table(title=family, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="dim")
        for column in ("operator", *dtypes):
            table.add_column(column)
        for name, marks in rows.items():
            table.add_row(name, *(marks.get(d, "") for d in dtypes))
        console.print(table)
    console.print("L loops, x a library, m loops or a library as the call is, + whole, - refused, . eager PyTorch runs "
                  "no sample here, blank not declared", markup=False, highlight=False)
    for cell in cells:
        if cell["why"]:
            console.print(f"{cell['op']} {cell['dtype']}: {cell['why']}", markup=False, highlight=False)


def _list_left(console: Console, outcomes: Outcomes) -> None:
    rows = promised.left(outcomes.items())
    if rows:
        console.print("\n[bold]What is left to eager PyTorch[/]")
    for name, by, why in rows:
        console.print(f"{name}, needed by {len(by)}: {promised.named(by)}\n  {why}", markup=False, highlight=False)


def write(path: Path, bars: Sequence[Bar], outcomes: Outcomes, seconds: float) -> None:
    """The bars with the facts of the machine; a row for each job, or a cell for each operator and dtype."""
    report.write(path, bars, seconds)
    record: dict[str, Any] = js.loads(path.read_text())
    record["cells"] = [cell for o in outcomes.values() if isinstance(o.row, list) for cell in o.row]
    record["rows"] = [{**vars(job), "failure": o.failure, "doing": o.doing, "elapsed": round(o.seconds, 2),
                       **(o.row.as_json() if isinstance(o.row, Row) else {})}
                      for job, o in outcomes.items() if job.mode != TABLE]
    path.write_text(js.dumps(record, indent=1) + "\n")
