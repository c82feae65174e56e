"""``keel spec coverage``: what a backend runs of the operator set, dtype by dtype, and over PyTorch's catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from keel import coverage, universe
from keel.opset import MEMBERS
from keel.testing import find
from keel_conformance import report
from keel_conformance.cli_options import (
    CORES,
    AtOnce,
    Json,
    Resume,
    Retry,
    Samples,
    TimeLimit,
    choose,
    match_patterns,
    sample_count,
)
from keel_conformance.workers.command_run import running
from keel_conformance.workers.pool import Outcome
from keel_conformance.workers.spawn import forked

from . import bars as promised
from .jobs import MODES, TABLE, Job, Row
from .measure import work

WARM = "keel_bench.coverage.warm"
UNIVERSES = (TABLE, "opinfo")
TIME_LIMIT = 900.0  # seconds, for one OpInfo
MARKS = {"loops": "L", "extern": "x", "mixed": "m", "taken": "+", "refused": "-", "none": "."}

app = typer.Typer(add_completion=False)
Cells = Sequence[promised.Cell]


@app.callback(invoke_without_command=True)
def coverage_(
    backend: Annotated[str, typer.Option(help="The backend asked.")] = "cpp",
    universe: Annotated[
        str,
        typer.Option(help="table: the declarations, dtype by dtype; opinfo: PyTorch's catalog, compiled and run."),
    ] = TABLE,
    mode: Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")] = None,
    samples: Samples = "all",
    op: Annotated[list[str] | None, typer.Option(help="Only names that fit this pattern; repeatable.")] = None,
    numbers: Annotated[bool, typer.Option(help="Build, run, and compare with eager PyTorch and float64.")] = True,
    jobs: AtOnce = CORES,
    json: Json = None,
    resume: Resume = False,
    retry: Retry = False,
    time_limit: TimeLimit = TIME_LIMIT,
) -> None:
    """Does a backend run the operator set? Exits with 1 if a bar falls short."""
    find(backend)
    table = choose("universe", [universe], UNIVERSES)[0] == TABLE
    todo = _rows(backend, op) if table else planned(backend, mode, sample_count(samples), op, numbers)
    with running(json, Job, _row, resume=resume, retry=retry) as run:
        outcomes = run.measure("coverage", todo, forked(work, WARM), _trouble, at_once=jobs, time_limit=time_limit)
    cells = [cell for o in outcomes.values() if isinstance(o.row, list) for cell in o.row]
    if table:
        show(run.console, cells)
        bars = list(promised.of_table(backend, cells, (j.name for j, o in outcomes.items() if o.row is None)))
    else:
        bars = [
            bar
            for m in dict.fromkeys(job.mode for job in todo)
            for bar in promised.of_mode(backend, m, {j: o for j, o in outcomes.items() if j.mode == m})
        ]
        report.list_needs(run.console, "What is left to eager PyTorch", promised.left(outcomes.items()))
    rows = [{**vars(job), **o.as_json()} for job, o in outcomes.items() if job.mode != TABLE]
    run.finish(bars, cells=cells, rows=rows)


def _rows(backend: str, patterns: Sequence[str] | None) -> list[Job]:
    names = [op.name for op in MEMBERS.values() if op.kind == "primitive" and not op.tags & coverage.BEYOND]
    return [Job(backend, name, TABLE) for name in match_patterns(names, patterns)]


def planned(
    backend: str, modes: Sequence[str] | None, samples: int | None, patterns: Sequence[str] | None, numbers: bool
) -> list[Job]:
    """The jobs of all modes. Training is asked only of what promises gradients. Raises KeelError[bad-option]."""
    names = match_patterns(universe.names(), patterns)
    return [
        Job(backend, name, mode, samples, numbers)
        for mode in choose("mode", modes, MODES)
        for name in names
        if mode == "forward" or universe.supports_autograd(name)
    ]


def _row(job: Job, row: Any) -> Any:
    """A row as a log has it, as it was."""
    return row if job.mode == TABLE else Row(**row)


def _trouble(job: Job, outcome: Outcome) -> str:
    row = outcome.row
    sentences = (
        outcome.failure
        if not isinstance(row, Row)
        else " ".join([*(f"left: {name}." for name in row.left), *row.wrong, *row.inaccurate])
    )
    return f"{job.title}: {sentences}" if sentences else ""


def show(console: Console, cells: Cells) -> None:
    """A line per operator, a column per dtype, by family; then the sentences of what is refused."""
    dtypes = list(dict.fromkeys(c["dtype"] for c in cells))
    for family in dict.fromkeys(c["family"] for c in cells):
        rows = {
            name: {c["dtype"]: MARKS[c["verdict"]] for c in cells if c["op"] == name}
            for name in dict.fromkeys(c["op"] for c in cells if c["family"] == family)
        }
        table = Table(title=family, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="dim")
        for column in ("operator", *dtypes):
            table.add_column(column)
        for name, marks in rows.items():
            table.add_row(name, *(marks.get(d, "") for d in dtypes))
        console.print(table)
    console.print(
        "L loops, x a library, m loops or a library as the call is, + whole, - refused, . eager PyTorch runs "
        "no sample here, blank not declared",
        markup=False,
        highlight=False,
    )
    for cell in cells:
        if cell["why"]:
            console.print(f"{cell['op']} {cell['dtype']}: {cell['why']}", markup=False, highlight=False)
