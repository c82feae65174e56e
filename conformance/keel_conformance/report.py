"""The end of a measurement: a table of bars on the terminal, and the same in a file with the facts of the machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

MARKS = {True: Text("yes", "green"), False: Text("NO", "bold red"), None: Text("-", "dim")}


@dataclass(frozen=True)
class Criterion:
    """One promise: ``value`` measured, ``target`` in words; ``holds`` is None for a figure without a promise."""

    name: str
    value: float | str | None
    target: str
    holds: bool | None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def show(console: Console, bars: Sequence[Criterion]) -> None:
    table = Table("bar", "figure", "target", "holds", "note", title="Bars", title_justify="left")
    for bar in bars:
        table.add_row(bar.name, figure(bar.value), bar.target, MARKS[bar.holds], Text(bar.note))
    console.print(table)
    retained, short, shown = (sum(bar.holds is x for bar in bars) for x in (True, False, None))
    console.print(f"{retained} bars hold, {short} fall short, {shown} figures without a target.")


def figure(value: float | str | None) -> str:
    match value:
        case None:
            return "none"
        case float():
            return f"{value:.3g}"
    return str(value)


def percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else "none"


def join_names(names: Iterable[str], most: int = 8) -> str:
    result: Sequence[str] = list(names)
    more = len(result) - most
    return ", ".join(result[:most]) + (f" and {more} more" if more > 0 else "")


def by_need(reasons: Iterable[tuple[str, Mapping[str, str]]]) -> list[tuple[str, list[str], str]]:
    """Groups needs by the thing needed: its name, the names of those that need it, and why. The thing that most of them
    need comes first.
    """
    needed: dict[str, tuple[list[str], str]] = {}
    for who, needs in reasons:
        for name, why in needs.items():
            needed.setdefault(name, ([], why))[0].append(who)
    rows = [(name, sorted(set(by)), why) for name, (by, why) in needed.items()]
    return sorted(rows, key=lambda row: (-len(row[1]), row[0]))


def list_needs(console: Console, title: str, rows: Sequence[tuple[str, Sequence[str], str]]) -> None:
    """What ``by_need`` found, below the title; nothing if it is nothing."""
    if rows:
        console.print(f"\n[bold]{title}[/]")
    for name, by, why in rows:
        console.print(f"{name}, needed by {len(by)}: {join_names(by)}\n  {why}", markup=False, highlight=False)


def write(path: Path, bars: Sequence[Criterion], seconds: float, **more: Any) -> None:
    """The bars with the facts of the machine, and what ``more`` there is."""
    record = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "machine": machine(),
        "bars": [bar.as_json() for bar in bars],
        **more,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": compiler_name(),
        "packages": {name: v for name in ("torch-keel", "transformers", "timm") if (v := _version(name)) is not None},
    }


def _version(name: str) -> str | None:
    """None where it is not installed: only the models need transformers and timm."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The model name that Linux gives; what Python knows elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def compiler_name() -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        return "none"
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
