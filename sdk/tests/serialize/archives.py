"""Saved graphs that tests take apart and put together again, with other data."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[dict[str, Any]], Any]


def parts_of(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def data_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(parts_of(file)["graph.json"])
    return found


def put(file: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED)


def changed(file: Path, change: Change) -> None:
    """The same file with other data."""
    parts = parts_of(file)
    data = json.loads(parts["graph.json"])
    change(data)
    put(file, {**parts, "graph.json": json.dumps(data).encode()})
