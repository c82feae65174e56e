"""``keel spec closure``: the command that proves that the operator set is closed, typed and accurate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from keel import universe
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

from ..models.model_zoo import NAMES
from . import bars as promised
from . import tracing_time
from .jobs import MODES, Job, Outcomes, Row
from .worker import work

UNIVERSES = {"opinfo": "OpInfos", "zoo": "models"}
PARTS = ("members", "closure", "time")
WARM = "keel_bench.closure.warm"
TIME_LIMIT = 1800.0  # seconds, for one OpInfo

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def closure(
    universe: Annotated[str, typer.Option(help=f"What is traced: {', '.join(UNIVERSES)}.")] = "opinfo",
    mode: Annotated[list[str] | None, typer.Option(help=f"Only this mode; repeatable: {', '.join(MODES)}.")] = None,
    dynamic: Annotated[
        bool | None, typer.Option("--dynamic/--static", help="Only with symbolic, or only with known sizes.")
    ] = None,
    samples: Samples = "all",
    op: Annotated[
        list[str] | None, typer.Option(help="Only OpInfos (models) whose name fits this pattern; repeatable.")
    ] = None,
    part: Annotated[list[str] | None, typer.Option(help=f"Only this part; repeatable: {', '.join(PARTS)}.")] = None,
    numbers: Annotated[bool, typer.Option(help="Compare with eager PyTorch and float64.")] = True,
    jobs: AtOnce = CORES,
    json: Json = None,
    resume: Resume = False,
    retry: Retry = False,
    time_limit: TimeLimit = TIME_LIMIT,
) -> None:
    """Does every program end in the operator set? Exits with 1 if a bar falls short."""
    what = UNIVERSES[choose("universe", [universe], tuple(UNIVERSES))[0]]
    parts = choose("part", part, PARTS)
    settings = [(m, d) for d in (False, True) if dynamic in (None, d) for m in choose("mode", mode, MODES)]
    todo = planned(universe, settings, sample_count(samples), op, numbers) if "closure" in parts else []
    with running(json, Job, _row, resume=resume, retry=retry) as run:
        start = forked(work, WARM)
        outcomes = run.measure("closure", todo, start, _trouble, at_once=jobs, time_limit=time_limit)
        times = run.measure(
            "time", tracing_time.jobs() if "time" in parts else [], start, _trouble, time_limit=time_limit
        )
    bars = list(promised.of_members()) if "members" in parts else []
    for setting in dict.fromkeys(job.setting for job in todo):
        bars += promised.of_setting(setting, {j: o for j, o in outcomes.items() if j.setting == setting}, what)
    bars += tracing_time.bars(times)
    report.list_needs(run.console, "What remains outside", promised.outside(outcomes.items()))
    _list_left_out(run.console, outcomes)
    _list_untraced(run.console, outcomes)
    run.finish(bars, rows=[_flat(job, outcome) for job, outcome in [*outcomes.items(), *times.items()]])


def planned(
    of: str, settings: Sequence[tuple[str, bool]], samples: int | None, patterns: Sequence[str] | None, numbers: bool
) -> list[Job]:
    """The jobs of all settings. Training is asked only of what promises gradients. Raises KeelError[bad-option]."""
    result = match_patterns(universe.names() if of == "opinfo" else NAMES, patterns)
    return [
        Job(of, name, mode, dynamic, samples, numbers and of == "opinfo")
        for mode, dynamic in settings
        for name in result
        if mode == "forward" or of == "zoo" or universe.supports_autograd(name)
    ]


def _row(job: Job, row: Any) -> Any:
    """A row as a log has it, as it was."""
    return row if job.universe == "time" else Row(**row)


def _flat(job: Job, outcome: Outcome) -> dict[str, Any]:
    """A job and its row, for the file; the samples asked for are ``of``, for the row has as many as there were."""
    fields = {**vars(job), "of": job.samples}
    del fields["samples"]
    return {**fields, **outcome.as_json()}


def _trouble(job: Job, outcome: Outcome) -> str:
    row = outcome.row
    sentences = (
        outcome.failure
        if not isinstance(row, Row)
        else " ".join([*(f"outside: {name}." for name in row.outside), *row.wrong, *row.mistyped, *row.inaccurate])
    )
    return f"{job.title}: {sentences}" if sentences else ""


def _list_left_out(console: Console, outcomes: Outcomes) -> None:
    rows = [(job, *item) for job, o in outcomes.items() if isinstance(o.row, Row) for item in o.row.left_out.items()]
    if rows:
        console.print("\n[bold]What the operator set leaves out by decision[/]")
    for job, sentence, example in rows:
        console.print(f"{job.title}: {sentence} ({example})", markup=False, highlight=False)


def _list_untraced(console: Console, outcomes: Outcomes) -> None:
    console.print("\n[bold]What PyTorch does not trace[/]")
    for job, outcome in outcomes.items():
        if outcome.row is None:
            console.print(f"{job.title}: {outcome.failure}", markup=False, highlight=False)
            continue
        for reason, example in outcome.row.untraced.items():
            share = "" if outcome.row.traced else ", and no other sample"
            console.print(f"{job.title}: {reason} ({example}{share})", markup=False, highlight=False)
