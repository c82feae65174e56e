"""What the commands that measure ask in the same words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from keel import KeelError

Json = Annotated[Path | None, typer.Option(help="Write bars and rows to this file, rows at once to a log beside it.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run whose log stands beside the --json file.")]
Retry = Annotated[bool, typer.Option("--retry", help="The same, and measure again what died or took too long.")]
AtOnce = Annotated[int, typer.Option("--jobs", "--at-once", min=1, help="Processes at a time.")]
TimeLimit = Annotated[float, typer.Option(help="Seconds that one process may take.")]
Samples = Annotated[str, typer.Option(help="How many of each OpInfo's, spread evenly: a number, or all.")]

CORES = os.cpu_count() or 1


def choose(what: str, names: Sequence[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names asked for, all known ones if none was."""
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"there is no {what} {name!r}; there are {', '.join(known)}.")
    return tuple(names or known)


def match_patterns(names: Iterable[str], patterns: Sequence[str] | None) -> list[str]:
    """Returns the names that match a pattern, or all names without patterns. Raises KeelError[bad-option] if no name
    matches.
    """
    results = [n for n in names if any(fnmatchcase(n, p) for p in patterns or ["*"])]
    if not results:
        raise KeelError("bad-option", f"Nothing is called {' or '.join(patterns or ())}.", do="* matches anything.")
    return results


def sample_count(samples: str) -> int | None:
    """The number in ``samples``; None for all."""
    if samples == "all":
        return None
    if not samples.isdecimal() or int(samples) == 0:
        raise typer.BadParameter(f"--samples {samples!r} is neither a number nor all.")
    return int(samples)
