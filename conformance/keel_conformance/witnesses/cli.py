"""``keel conform witnesses``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from keel import KeelError
from keel.opset import MEMBERS

from ..cases.domains import domain_of
from ..cases.plan import TIERS, cases_of
from ..cli_options import CORES, choose, match_patterns
from ..harness.executor import PRELOAD
from ..workers.pool import run_all
from ..workers.spawn import forked
from .table_report import OperatorTable, as_json, by_class
from .witness_table import cells_of, is_judged

LIMIT = 3600.0
"""Seconds that the table of one operator may take: far more than any does."""


@dataclass(frozen=True)
class Task:
    """The operator whose table is made."""

    op: str
    tier: str
    seed: int


def witnesses_command(
    op: Annotated[list[str] | None, typer.Option("--op", help="Only what fits this pattern; repeatable.")] = None,
    tier: Annotated[str, typer.Option(help=f"The cases that are looked at: {', '.join(TIERS)}.")] = "standard",
    seed: Annotated[int, typer.Option(help="Seed for choosing the cases and drawing their values.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = CORES,
    file: Annotated[Path | None, typer.Option("--json", help="Write the table of each operator to this file.")] = None,
) -> None:
    """Show which classes of values and sizes the cases of operators witness, in the dtypes that matter most."""
    choose("tier", [tier], TIERS)
    tables = tables_of([Task(name, tier, seed) for name in match_patterns(MEMBERS, op)], jobs)
    Console().print(by_class(tables))
    if file is not None:
        file.write_text(json.dumps(as_json(tables, {"tier": tier, "seed": seed}), indent=1) + "\n")


def tables_of(tasks: list[Task], jobs: int) -> list[OperatorTable]:
    """The tables of operators whose results are decided. Raises KeelError[run-raised] for those that end a process."""
    tables, failures = dict[str, OperatorTable](), dict[str, str]()
    for task, outcome in run_all(tasks, forked(_work, PRELOAD), at_once=jobs, time_limit=LIMIT):
        if outcome.failure:
            failures[task.op] = outcome.failure
        elif outcome.row is not None:
            tables[task.op] = outcome.row
    if failures:
        raise KeelError("run-raised", "The tables of some operators could not be made.", failures)
    return [tables[task.op] for task in tasks if task.op in tables]


def table_of(task: Task) -> OperatorTable | None:
    """None for an operator that has no domain, or whose results are drawn at random."""
    domain = domain_of(task.op)
    if domain is None or not is_judged(domain.op):
        return None
    cases = cases_of(domain, task.tier, task.seed)
    return OperatorTable(task.op, cells_of(domain.op, cases, domain.factors["dtype"]))


def _work(task: Task, tell: Callable[[str], None]) -> OperatorTable | None:
    return table_of(task)
