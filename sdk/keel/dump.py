"""``KEEL_DUMP=dir`` writes every stage of every graph to a file that people can read and tools can start from."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import fx

from keel.errors import KeelError, KeelWarning

STAGES = {
    "captured": "captured.fx",
    "legalized": "legalized.fx",
    "placed": "placed.json",
    "scheduled": "{name}.loops",  # each kernel
    "rendered": "{name}",  # each kernel, in the target's language
    "launched": "{name}-launches.json",  # each part of a loop target
    "autotuned": "autotuned.json",
}
"""The stages of a graph, in order, and what their files are called: a stage's number, a dash, and this."""


def folder(kind: str) -> Path | None:
    """A new folder for one graph, ``<KEEL_DUMP>/<number>-<kind>``; None unless the variable is set. Raises
    KeelError[bad-option] if it cannot be made.
    """
    root = os.environ.get("KEEL_DUMP")
    if not root:
        return None
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
        for number in range(len(list(Path(root).glob("*-*"))), 1 << 20):
            with suppress(FileExistsError):
                path = Path(root) / f"{number:02d}-{kind}"
                path.mkdir()
                return path
    except OSError as e:
        raise KeelError(
            "bad-option", f"KEEL_DUMP={root} is not a writable folder.", {"system": e.strerror or str(e)}
        ) from e
    raise AssertionError("unreachable")


def inside(where: Path | None, name: str) -> Path | None:
    """A folder of that name in a graph's folder, for another plan of the graph; None if there is no folder."""
    if where is not None:
        _act(where / name, lambda path: path.mkdir(exist_ok=True))
    return where / name if where is not None else None


def write(where: Path | None, stage: str, text: Callable[[], str], name: str = "") -> None:
    """Writes ``text()`` to the file of a stage in the folder. Does nothing without a folder. ``name`` distinguishes
    several files of a stage.
    """
    if where is not None:
        content = text().rstrip("\n") + "\n"
        _act(where / _file(stage, name), lambda path: path.write_text(content, encoding="utf-8"))


def _file(stage: str, name: str) -> str:
    return f"{list(STAGES).index(stage) + 1:02d}-{STAGES[stage].format(name=name)}"


def _act(path: Path, act: Callable[[Path], object]) -> None:
    """If the disk is full, the file is missing and a warning is given, but compilation continues."""
    try:
        act(path)
    except OSError as e:
        warnings.warn(f"KEEL_DUMP: {path.parent} lacks files: {e.strerror or e}.", KeelWarning, stacklevel=1)


def count(where: Path | None, stage: str) -> int:
    """How many files of a stage the folder has: a number for the next one, where a graph has several parts."""
    return len(list(where.glob(_file(stage, "*")))) if where is not None else 0


def graph_text(gm: fx.GraphModule) -> str:
    """The graph as Python that names the type of every value."""
    return str(gm.print_readable(print_output=False, include_stride=True, include_device=True))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2)
