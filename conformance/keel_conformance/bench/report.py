"""The end of a bench: a table of bars on the terminal, and the same in a file with the facts of the machine."""
from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .jobs import Bar

MARKS = {True: Text("yes", "green"), False: Text("NO", "bold red"), None: Text("-", "dim")}


def show(console: Console, bars: Sequence[Bar]) -> None:
    table = Table("bar", "figure", "target", "holds", "note", title="Bars", title_justify="left")
    for bar in bars:
        table.add_row(bar.name, figure(bar.value), bar.target, MARKS[bar.holds], Text(bar.note))
    console.print(table)
    kept, short, shown = (sum(bar.holds is x for bar in bars) for x in (True, False, None))
    console.print(f"{kept} bars hold, {short} fall short, {shown} figures without a target.")


def figure(value: float | str | None) -> str:
    match value:
        case None:
            return "none"
        case float():
            return f"{value:.3g}"
    return str(value)


def write(path: Path, bars: Sequence[Bar], seconds: float) -> None:
    record = {"made": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": round(seconds, 1),
              "machine": machine(), "bars": [bar.as_json() for bar in bars]}
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
        "packages": {name: version(name) for name in ("torch-keel", "transformers", "timm")},
    }


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
