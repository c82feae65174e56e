"""A slice of the mutated files, the same each time; and that what a file must not do is noticed where it does."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from keel import KeelError
from keel_bench.fuzz.folders import as_member, unpacked
from keel_bench.fuzz.loaders import LOADERS
from keel_bench.fuzz.mutate import unzipped, zipped
from keel_bench.fuzz.package_bytes import member, package_of
from keel_bench.fuzz.signed_files import repaired, with_digests, with_seal, with_signature
from keel_bench.fuzz.trials import _watch, file_of, read_files
from keel_bench.fuzz.watch import LIMIT, ReadOutcome, unexpected, unexpected_of_keel

pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")


PROGRAMS = ("graph", "repro", "package", "saved")
"""The loaders that take longest for a file."""
CODES = {"bad-file", "bad-text", "bad-graph", "bad-artifact", "bad-option", "compile-raised", "opset-version"}
BUILT = (pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="It is built by g++."))
EACH = [pytest.param(name, marks=BUILT if name == "runtime" else ()) for name in LOADERS]


@pytest.mark.parametrize("loader", EACH)
def test_no_file_does_harm(loader: str) -> None:
    tally = read_files(loader, seed=0, first=0, count=60 if loader in PROGRAMS else 200)
    assert tally.is_clean, tally.bad
    assert 0 < tally.accepted < tally.files and tally.refused == tally.files - tally.accepted
    assert set(tally.codes) <= CODES


@pytest.mark.parametrize("loader", [*LOADERS])
def test_the_same_seed_gives_the_same_files(loader: str) -> None:
    assert file_of(loader, 3, 5) == file_of(loader, 3, 5) != file_of(loader, 4, 5)


def test_checksums_of_changed_packages_are_right() -> None:
    for seed in LOADERS["package"].seeds():
        assert package_of(unzipped(seed)) == seed
    changed = member("graph.json", lambda data, draw: data + b" ")(seed, random.Random(0))
    assert unzipped(changed)["graph.json"].endswith(b" ") and changed != seed


def test_hashes_of_changed_files_are_right() -> None:
    for loader, repair in (("certificate", with_seal), ("lock", with_digests), ("signature", with_signature)):
        (seed,) = LOADERS[loader].seeds()
        data = json.loads(seed)
        assert repair(data) == data
    assert repaired(lambda data, draw: b"{", with_seal)(b"", random.Random(0)) == b"{"


def test_archives_become_folders(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(zipped({"a": b"1", "../b": b"2"}))
    assert [p.name for p in sorted(unpacked("a", "c")(file).iterdir())] == ["a"]
    assert (unpacked("a", alone_as="log")(file) / "a" / "log").read_bytes() == b"1"
    file.write_bytes(b"no archive")
    assert (unpacked("a", "b")(file) / "a").read_bytes() == (as_member("c")(file) / "c").read_bytes() == b"no archive"


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


@pytest.mark.parametrize(
    ("source", "odd"),
    [
        ("def run(args):\n    try:\n        x = f_1(args)\n    except BaseException as e:\n        raise", None),
        ("def run(args):\n    return open(args)", "open"),
        ("def run(args):\n    return keel_canary", "keel_canary"),
        ("def run(args):\n    return args.__class__", "__class__"),
        ("def run(args):\n    return 'x'", "text"),
        ("import os", "Import"),
    ],
)
def test_sources_that_keel_does_not_write(source: str, odd: str | None) -> None:
    found = unexpected_of_keel(source)
    assert found is None if odd is None else odd in (found or "")
