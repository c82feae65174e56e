"""KEEL_DUMP=dir: every stage of every graph as a file that can be read, and from which work can be taken up again."""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import fx

META = "keel.dump"
"""The key of ``gm.meta`` under which a part's graph carries the folder that its backend may write into."""


def folder(kind: str) -> Path | None:
    """A new folder for one graph, ``<KEEL_DUMP>/<number>-<kind>``; None unless the variable is set."""
    root = os.environ.get("KEEL_DUMP")
    if not root:
        return None
    for number in range(len(list(Path(root).glob("*-*"))), 1 << 20):
        path = Path(root) / f"{number:02d}-{kind}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def inside(where: Path | None, name: str) -> Path | None:
    """A folder of that name in a graph's folder, for another plan of the graph; None if there is no folder."""
    if where is not None:
        (where / name).mkdir(exist_ok=True)
    return where / name if where is not None else None


def write(where: Path | None, name: str, text: Callable[[], str]) -> None:
    """Writes ``text()`` to a file of the folder; nothing at all if there is no folder."""
    if where is not None:
        (where / name).write_text(text().rstrip("\n") + "\n")


def count(where: Path | None, pattern: str) -> int:
    """How many files of the folder match: a number for the next one, where a graph has several parts."""
    return len(list(where.glob(pattern))) if where is not None else 0


def graph_text(gm: fx.GraphModule) -> str:
    """The graph as Python that names the type of every value."""
    return str(gm.print_readable(print_output=False, include_stride=True, include_device=True))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2)
