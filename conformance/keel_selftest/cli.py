"""``keel selftest``: does the suite find every backend that is wrong on purpose, and nothing wrong with the others?"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from keel import documents
from keel_conformance import report
from keel_conformance.cases.plan import TIERS, named, other_cases
from keel_conformance.cli_options import CORES, Json, choose, match_patterns
from keel_conformance.workers.command_run import interruptible

from .campaign import PARTS, Campaign
from .registry import MUTANTS

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def selftest(
    tier: Annotated[str, typer.Option(help=f"How many cases: {', '.join(TIERS)}.")] = "smoke",
    profile: Annotated[str, typer.Option(help="Profile of the cases.")] = "strict",
    seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds; what is promised is of 5, and of 3 for variants that must pass.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time that run cases.")] = CORES,
    mutant: Annotated[list[str] | None, typer.Option(help="Only mutants that fit this pattern; repeatable.")] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(help="Only cases of operators, programs and kernels that fit this pattern; repeatable."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"Only these parts: {', '.join(PARTS)}.")] = None,
    json: Json = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the logs, from which --resume goes on.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the --out folder.")] = False,
) -> None:
    """Try the suite on backends that are wrong on purpose, that compute nothing, and that are right in other ways.
    Exits with 1 if a bar falls short.
    """
    if resume and out is None:
        raise typer.BadParameter("--resume goes on with the run in a folder: which one, --out says.")
    parts = choose("part", only or (["mutants"] if mutant else None), PARTS)
    tier, begin = choose("tier", [tier], tuple(TIERS))[0], time.monotonic()
    console = Console(width=None if os.isatty(1) else 200)
    with ExitStack() as stack:
        if out is not None:
            documents.claim(out, "keel selftest")
        folder = out or Path(stack.enter_context(TemporaryDirectory(prefix="keel-selftest-")))
        interruption = stack.enter_context(interruptible())
        sitting = Campaign(
            console,
            tier,
            profile,
            jobs,
            folder,
            resume,
            interruption,
            tuple(match_patterns(named(other_cases(tier, seed)), op)) if op else (),
        )
        bars = sitting.bars(parts, range(seed, seed + seeds), match_patterns(MUTANTS, mutant))
    report.show(console, bars)
    if json is not None:
        report.write(json, bars, time.monotonic() - begin, **sitting.rows)
    if interruption.by is not None:
        raise typer.Exit(128 + interruption.by)
    raise typer.Exit(1 if any(bar.holds is False for bar in bars) else 0)
