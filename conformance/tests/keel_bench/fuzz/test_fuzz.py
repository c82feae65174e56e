"""A slice of the mutated files, the same each time; and that what a file must not do is noticed where it does."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import KeelError
from keel_bench.fuzz.loaders import LOADERS
from keel_bench.fuzz.trials import _watch, file_of, read_files
from keel_bench.fuzz.watch import LIMIT, ReadOutcome, unexpected

pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")


@pytest.mark.parametrize("loader", LOADERS)
def test_no_file_does_harm(loader: str) -> None:
    tally = read_files(loader, seed=0, first=0, count=60 if loader == "graph" else 200)
    assert tally.is_clean, tally.bad
    assert 0 < tally.accepted < tally.files and tally.refused == tally.files - tally.accepted
    assert set(tally.codes) <= {"bad-file", "bad-text", "bad-graph", "opset-version"}


@pytest.mark.parametrize("loader", LOADERS)
def test_the_same_seed_gives_the_same_files(loader: str) -> None:
    assert file_of(loader, 3, 5) == file_of(loader, 3, 5) != file_of(loader, 4, 5)


def seen(load: Callable[[Path], Any]) -> ReadOutcome:
    return _watch().read(load, b"")


def imported(name: str) -> None:
    """Imports a module of Python's library as if nobody had."""
    sys.modules.pop(name, None)
    importlib.import_module(name)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (lambda path: os.system("true"), "os.system"),
        (lambda path: imported("no_such_module"), "import no_such_module"),
        (lambda path: imported("this"), "import this"),
        (lambda path: exec("x = 1"), "compile <string>"),
        (lambda path: path.with_name("other").write_text("x"), "open "),
        (lambda path: eval("print"), "compile"),
        (lambda path: torch.fx.GraphModule({}, odd_graph()), "It calls keel_canary"),
    ],
)
def test_what_runs_is_noticed(load: Callable[[Path], Any], said: str) -> None:
    found = seen(load)
    assert found.bad and any(said in what for what in found.executed), found


def odd_graph() -> torch.fx.Graph:
    """A graph whose argument by name is code."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.neg, (), {"input=keel_canary()) #": x}))
    return graph


def test_what_fails_or_takes_long_is_noticed() -> None:
    def broken(path: Path) -> None:
        raise ValueError("no")

    def refused(path: Path) -> None:
        raise KeelError("bad-file", "no")

    assert seen(broken).ending == "raw error" and seen(broken).bad and seen(broken).error == "ValueError: no"
    assert seen(refused).ending == "refused" and not seen(refused).bad
    assert ReadOutcome("taken", LIMIT * 1.01).bad and not seen(lambda path: path.read_bytes()).bad


@pytest.mark.parametrize(
    ("source", "odd"),
    [
        ("def forward(self, x):\n  y = torch.ops.aten.neg.default(x); x = None\n  return (y,)", None),
        ("def forward(self, x=open('y')):\n  return x", "not a function named forward"),
        ("import os", "not a function named forward"),
        ("def forward(self, x):\n  return open(x)", "It calls open."),
        ("def forward(", "SyntaxError"),
        ("def forward(self): return x.__class__", "__class__"),
        ("def forward(self): return lambda: 0", "Lambda"),
        ("def forward(self, x):\n  import os", "Import"),
    ],
)
def test_sources_that_pytorch_does_not_write(source: str, odd: str | None) -> None:
    found = unexpected(source)
    assert found is None if odd is None else odd in (found or "")
