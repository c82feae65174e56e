"""``python -m keel_bench.fuzz``: mutated files, the same for a seed; with ``--minutes`` guided by branches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from keel_conformance.cli_options import CORES
from keel_conformance.report import machine

from .loaders import LOADERS
from .trials import Tally, campaign

COLUMNS = ("files", "accepted", "refused", "raw", "slow", "ran", "died", "slowest")
TITLES = {"raw": "raw errors", "slow": "over 1 s", "ran": "ran code"}


def fuzz(
    loaders: Annotated[
        list[str] | None,
        typer.Argument(help=f"Of {', '.join(LOADERS)}; by default all. NAME=N gives one a number of its own."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Mutated files for each loader.")] = 10_000,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Minutes of a search guided by branches, for each loader, instead (with atheris: "
            + escape("pip install 'torch-keel[fuzz]')."),
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the mutations.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = CORES,
    corpus: Annotated[Path | None, typer.Option(help="Where a guided search keeps what it found.")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Give damaged and made-up files to what reads files. Exits with 1 for an error that is not Keel's, for more than a
    second of the processor, or for code that ran.
    """
    counts_by_loader = [name.partition("=") for name in loaders or LOADERS]
    counts = {name: int(own) if own.isdecimal() else count for name, _, own in counts_by_loader}
    if unknown := [name for name in counts if name not in LOADERS]:
        raise typer.BadParameter(f"There is no loader {unknown[0]}: {', '.join(LOADERS)}.")
    if minutes:
        raise typer.Exit(max(_guided(name, minutes, corpus) for name in counts))
    tallies = {name: Tally(name) for name in counts}
    for tally in campaign(counts, seed, jobs):
        tallies[tally.loader].add(tally)
        if out is not None:
            _write(out, tallies, seed)
    Console().print(_table(tallies))
    for tally in tallies.values():
        for number, message in tally.bad:
            Console().print(f"{tally.loader} {number}: {message}", highlight=False, markup=False)
    raise typer.Exit(0 if all(t.is_clean for t in tallies.values()) else 1)


def _write(out: Path, tallies: dict[str, Tally], seed: int) -> None:
    total = Tally("all")
    for tally in tallies.values():
        total.add(tally)
    draft = out.with_name(out.name + ".draft")
    draft.write_text(
        json.dumps(
            {
                "machine": machine(),
                "seed": seed,
                "loaders": [t.as_json() for t in tallies.values()],
                "all": total.as_json(),
            },
            indent=1,
        )
        + "\n"
    )
    draft.replace(out)


def _table(tallies: dict[str, Tally]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("loader")
    for column in COLUMNS:
        table.add_column(TITLES.get(column, column), justify="right")
    for tally in tallies.values():
        table.add_row(
            tally.loader, *(f"{v:.2f} s" if isinstance(v := getattr(tally, c), float) else f"{v:,}" for c in COLUMNS)
        )
    return table


def _guided(name: str, minutes: float, corpus: Path | None) -> int:
    """A search in a process of its own, which it ends."""
    where = [] if corpus is None else [str(corpus / name)]
    command = [sys.executable, "-m", "keel_bench.fuzz.guided", name, str(round(minutes * 60)), *where]
    return subprocess.run(command, env=dict(os.environ), check=False).returncode


if __name__ == "__main__":
    typer.run(fuzz)
