"""A failing contract program becomes a script of the part that the backend got wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from keel.minify import LINES, Deadline
from keel_conformance.programs import cases
from keel_conformance.repro.reduce_program import _part, of_program
from keel_conformance.repro.replay import ReplayPool
from keel_conformance.results.verdict import Verdict


@pytest.fixture(scope="module")
def bench() -> Iterator[ReplayPool]:
    with ReplayPool() as found:
        yield found


@pytest.mark.parametrize(
    ("backend", "program"),
    [
        ("big", "gradients-of-product"),
        ("error", "mutation-in-place"),
        ("caches", "gradients-of-matmul"),
        ("tail", "gradients-of-relu"),
    ],
)
def test_a_script_fails_where_it_should_and_passes_where_it_should(
    backend: str, program: str, tmp_path: Path, bench: ReplayPool
) -> None:
    known = {c.op: c for c in cases("standard")}
    case = known.get(program) or next(c for name, c in known.items() if name.startswith(program.partition("-")[0]))
    (tmp_path / "repro").mkdir()
    v = Verdict(case.id, "fail", "exact", "It differs.", case.clauses[0])
    found = of_program(tmp_path, f"failing_backends:{backend}", case, v, bench, Deadline(10.0))
    text = (tmp_path / found.path).read_text()
    assert found.shown and text.count("\n") <= LINES and "keel_conformance" not in text
    right = tmp_path / "right.py"
    right.write_text(text.replace(f"import {backend} as", "import right as"))
    assert bench.status(str(right)) == 0


def test_what_no_part_shows_is_said(tmp_path: Path, bench: ReplayPool) -> None:
    case = next(c for c in cases("smoke") if c.op.startswith("gradients"))
    (tmp_path / "repro").mkdir()
    found = of_program(tmp_path, "failing_backends:right", case, Verdict(case.id, "fail"), bench, Deadline(5.0))
    assert not found.path and "No part that the backend compiled" in found.lacking
    assert not list((tmp_path / "repro").glob("*.py"))


def test_a_program_that_fails_only_as_a_whole_has_a_script(
    tmp_path: Path, bench: ReplayPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(c for c in cases("standard") if c.op.startswith("mutation"))
    (tmp_path / "repro").mkdir()
    v = Verdict(case.id, "fail", "exact", "It differs.", case.clauses[0])
    monkeypatch.setattr(bench, "value", lambda work, *args: None)  # no part of it is wrong
    found = of_program(tmp_path, "failing_backends:error", case, v, bench, Deadline(5.0))
    text = (tmp_path / found.path).read_text()
    assert found.shown and text.count("\n") <= LINES and f"show('failing_backends:error', '{case.op}'" in text


def renamed(node: fx.Node, name: str) -> fx.Node:
    node.name = name
    return node


@pytest.mark.parametrize("name", ["x: print(1)", "class", "torch", "a b", "é", "x=1", "program"])
@pytest.mark.parametrize("which", [0, 1])
def test_only_names_that_are_names_come_into_the_text(name: str, which: int) -> None:
    gm = make_fx(torch.neg)(torch.ones(2))
    renamed([*gm.graph.nodes][which], name)
    with pytest.raises(ValueError, match="cannot be used as a name in a script"):
        _part(gm, "eager", next(iter(cases("smoke"))), [(torch.ones(2),)])
