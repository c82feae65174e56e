"""A failure becomes a script that fails on the backend that is wrong, and passes on one that is right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from keel.minify import LINES, Deadline
from keel_conformance.cases.case import Case
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.pytree import tree_leaves
from keel_conformance.repro.replay import FailingCalls, ReplayPool
from keel_conformance.repro.script import of_calls
from keel_conformance.repro.write_scripts import of_call, write
from keel_conformance.repro.written_script import Written
from keel_conformance.results.verdict import Verdict


@pytest.fixture(scope="module")
def bench() -> Iterator[ReplayPool]:
    with ReplayPool() as found:
        yield found


@cache
def planned(op: str) -> tuple[Case, ...]:
    """A few float32 cases of the operator, of some dozens of elements first."""

    def rank(c: Case) -> tuple[bool, bool, bool]:
        x = next(iter(tree_leaves(list(draw_inputs(c, 0).args))))
        size, dims = getattr(x, "numel", int)(), getattr(x, "ndim", 0)
        return not 20 < size < 2000, c.levels.get("values") != "random", dims != 2

    some = [c for c in plan(tier="standard", ops=[op]) if c.kind == "op" and c.dtype == "f32"]
    return tuple(sorted(some, key=rank)[:8])


def shown(folder: Path, backend: str, op: str, bench: ReplayPool, seconds: float = 1.0) -> tuple[Written, str]:
    """Tries cases as a run does, writes the script of the first that fails, and gives that with its text."""
    (folder / "repro").mkdir()
    for case in planned(op):
        v = bench.verdict(
            FailingCalls(f"failing_backends:{backend}", case, tuple(draw_inputs(case, d) for d in (0, 1, 0)))
        )
        if v.status in ("fail", "crash"):
            found = of_call(folder, f"failing_backends:{backend}", case, v, bench, Deadline(seconds))
            return found, (folder / found.path).read_text()
    raise AssertionError(f"{backend} fails at none of the cases.")


@pytest.mark.parametrize(
    ("backend", "op"),
    [
        ("tail", "sum"),
        ("big", "mm"),
        ("error", "neg"),
        ("writes", "neg"),
        ("beside", "neg"),
        ("aliases", "neg"),
        ("strides", "neg"),
        ("dtypes", "neg"),
        ("fewer", "neg"),
        ("caches", "neg"),
        ("reuses", "neg"),
        ("tires", "exp"),
        ("dies", "neg"),
        ("tail", "sort"),
        ("pairs", "var_mean"),
    ],
)
def test_a_script_fails_where_it_should_and_passes_where_it_should(
    backend: str, op: str, tmp_path: Path, bench: ReplayPool
) -> None:
    found, text = shown(tmp_path, backend, op, bench)
    assert text.count("\n") <= LINES and found.shown
    assert "keel_conformance" not in text
    right = tmp_path / "right.py"
    right.write_text(
        text.replace(f"from failing_backends import {backend} as", "from failing_backends import right as")
    )
    assert right.read_text() != text
    assert bench.status(str(right)) == 0


@pytest.mark.parametrize(
    ("oracle", "op", "figures"),
    [
        ("ulp", "sum", {}),
        ("contract", "sum", {"fault": "argument written"}),
        ("contract", "sum", {"fault": "result changed", "result": 0, "call": 0}),
        ("contract", "sum", {"fault": "argument shared", "result": 0, "call": 0}),
        ("contract", "var_mean", {"fault": "result shared", "result": 0, "call": 0, "other": 1}),
        ("contract", "sum", {"fault": "result shared", "result": 0, "call": 0}),
        ("repeat", "sum", {}),
        ("ulp", "full", {}),
    ],
)
def test_on_a_device_of_its_own(
    oracle: str, op: str, figures: dict[str, Any], tmp_path: Path, bench: ReplayPool
) -> None:
    """Without such a device a script can be run where its name is replaced by the host's."""
    case = planned(op)[0]
    calls = FailingCalls(
        "failing_backends:elsewhere", case, tuple(draw_inputs(case, d) for d in (0, int(oracle != "repeat")))
    )
    text = of_calls(calls, Verdict(case.id, "fail", oracle, "What is wrong.", figures=figures))
    made = text.partition("calls = ")[0].partition("import keel")[2]
    assert made.count("\nx") == made.count("cuda") > 0 or (op == "full" and "torch.device('cuda')" in text)
    for backend, status in (("tail", 1), ("right", 0)) if oracle == "ulp" and op == "sum" else (("right", 0),):
        script = tmp_path / f"{backend}.py"
        script.write_text(text.replace("cuda", "cpu").replace("import elsewhere as", f"import {backend} as"))
        assert bench.status(str(script)) == status, text


def test_it_is_made_smaller(tmp_path: Path, bench: ReplayPool) -> None:
    found, text = shown(tmp_path, "big", "mul", bench, 15.0)
    assert found.smaller and "unpack" not in text and len(text) < 1600


def test_a_precondition_that_is_not_held(tmp_path: Path) -> None:
    case = next(c for c in plan(tier="standard", ops=["mm", "softmax", "gather"]) if c.kind == "negative")
    v = Verdict(case.id, "fail", "precondition", "It gave values for a call that breaks a precondition.")
    (found,) = write(tmp_path, "failing_backends:right", [case], [v], seconds=0.0)
    assert "expected an exception" in (tmp_path / found.path).read_text() and not found.lacking


def test_as_a_process_of_its_own(tmp_path: Path, bench: ReplayPool) -> None:
    found, text = shown(tmp_path, "tail", "neg", bench)
    other = tmp_path / "right.py"
    other.write_text(text.replace("import tail as", "import right as"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    for file, status in ((tmp_path / found.path, 1), (other, 0)):
        done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        assert "expected" in done.stdout and "found" in done.stdout and "allowed error" in done.stdout


def test_all_failures_of_a_run_are_written(tmp_path: Path) -> None:
    cases = [c for c in plan(tier="smoke", ops=["neg"]) if c.kind == "op"][:3]
    verdicts = [
        Verdict(cases[0].id, "fail", "exact", "At (0,) it is 1, not 2."),
        Verdict(cases[1].id, "pass"),
        Verdict(cases[2].id, "crash", "process", "It died of SIGSEGV while running call 0."),
    ]
    found = write(tmp_path, "failing_backends:right", cases, verdicts, seconds=0.0)
    assert [w.case for w in found] == [cases[0].id, cases[2].id]
    assert all((tmp_path / w.path).read_text().count("\n") <= LINES and not w.shown for w in found)
    assert "subprocess.run" in (tmp_path / found[1].path).read_text()
