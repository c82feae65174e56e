"""Which operators of a model ran in eager PyTorch, read from the dumps that the compiler writes of its placements."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from keel import KeelWarning

from .compilers import BASELINES, EAGER

# Operators that may stay with eager PyTorch, and why.
EXPECTED_IN_EAGER: Mapping[str, str] = {}

_ASSIGNMENT = re.compile(r"^\s*(\w+)(?:: [^=]+)? = torch\.ops\.([\w.]+)\(", re.MULTILINE)


@contextmanager
def recorded(compiler: str) -> Iterator[Path | None]:
    """A folder into which Keel writes each placement that it makes meanwhile; None for compilers that make none."""
    if compiler in BASELINES:
        yield None
        return
    with TemporaryDirectory(prefix="keel-bench-") as folder, setting("KEEL_DUMP", folder):
        yield Path(folder)


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """The environment variable set, and afterwards as it was."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def left_to_eager(folder: Path | None) -> dict[str, int]:
    """Operators in parts owned by eager PyTorch, over all graphs dumped into ``folder``, with their number."""
    counts: Counter[str] = Counter()
    for plan in sorted(folder.glob("*/*-placed.json")) if folder else ():
        graph = next(plan.parent.glob("*-legalized.fx")).read_text()
        operator = dict(_ASSIGNMENT.findall(graph))
        for part in json.loads(plan.read_text())["parts"]:
            if part["owner"] == EAGER:
                counts.update(operator.get(node, node) for node in part["nodes"])
    return dict(counts)


@contextmanager
def troubles() -> Iterator[list[str]]:
    """What Keel worked around meanwhile, each in its first lines: a part that was to be compiled and was not."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KeelWarning)
        try:
            yield texts
        finally:
            texts += ["; ".join(str(w.message).splitlines()[:2]) for w in caught if issubclass(w.category, KeelWarning)]


def graphs(folder: Path | None) -> int:
    """How many graphs were placed."""
    return len(list(folder.glob("*/*-placed.json"))) if folder else 0
