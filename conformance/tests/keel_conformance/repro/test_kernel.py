"""A failing kernel becomes a script that fails on the target that is wrong, and passes on one that is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keel.minify import LINES
from keel_conformance import kernels
from keel_conformance.harness.backend_under_test import load_backend
from keel_conformance.repro.replay import ReplayPool
from keel_conformance.repro.write_scripts import write

CASES = list(kernels.cases())


@pytest.fixture(scope="module")
def bench() -> Iterator[ReplayPool]:
    with ReplayPool() as found:
        yield found


@pytest.mark.parametrize(
    ("wrong", "op", "dtype"),
    [
        ("off", "copy", "f32"),
        ("off", "copy", "u16"),
        ("off", "turn", "c64"),
        ("off", "scalar-exp", "f32"),
        ("off", "checked-and-wrong", "i64"),
        ("beyond", "copy", "i8"),
        ("unbuilt", "copy", "f32"),
        ("off", "drawn", ""),
    ],
)
def test_a_script_fails_where_it_should(wrong: str, op: str, dtype: str, tmp_path: Path, bench: ReplayPool) -> None:
    case = next(c for c in CASES if (c.op, c.dtype) == (f"kernel-{op}", dtype))
    target = load_backend(f"failing_backends:kernels_{wrong}").backend.target
    assert target is not None
    v = kernels.judge(case, kernels.run_case(case, kernels.Builder(target)))
    assert v.status == "fail", v
    (found,) = write(tmp_path, f"failing_backends:kernels_{wrong}", [case], [v])
    text = (tmp_path / found.path).read_text()
    assert found.shown and text.count("\n") <= LINES and "keel_conformance" not in text, found
    other = tmp_path / "right.py"
    other.write_text(text.replace(f"import kernels_{wrong} as", "import kernels_right as"))
    assert bench.status(str(other)) == 0
