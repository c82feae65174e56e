"""What is measured of one OpInfo, and of one operator's declarations."""

from __future__ import annotations

from dataclasses import replace

import pytest

import keel
from keel import Refusal, loop_backend
from keel.testing import find
from keel_bench.coverage import measure
from keel_bench.coverage.jobs import TABLE, Job


def measured(name: str, mode: str = "training", **more: object) -> measure.Row:
    return measure.work(Job("interp", name, mode, 2, **more), lambda doing: None)  # type: ignore[arg-type]


def test_an_opinfo_is_compiled_and_compared() -> None:
    row = measured("nn.functional.silu")
    assert (row.samples, row.traced, row.without_fallback, row.judged) == (2, 2, 2, 2)
    assert row.ways.keys() == {"loops"} and not (row.left or row.wrong or row.inaccurate) and row.worst <= 2


def test_without_numbers_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    row = measured("linalg.det", numbers=False)
    assert row.without_fallback == row.traced and row.judged == 0 and row.externs["aten.linalg_lu_factor_ex.default"]


def test_what_is_left_to_eager_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = find("interp")
    assert whole.target is not None
    less = loop_backend(replace(whole.target, externs={}))
    monkeypatch.setattr(measure, "find", lambda name: less)
    row = measured("sort", "forward")
    assert row.without_fallback == 0 and "aten.sort.default has no loop form." in row.left["aten.sort.default"]


def test_a_wrong_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = find("interp")
    assert whole.target is not None
    sine = whole.target.externs["aten.sin.default"]
    wrong = replace(sine, refuse=None, run=lambda x: x.sin() * 1.001)
    off = loop_backend(replace(whole.target, externs={"aten.sin.default": wrong}))
    monkeypatch.setattr(measure, "find", lambda name: off)
    row = measured("sin", "forward")
    assert row.without_fallback == row.traced and "times eager's" in row.inaccurate[0]


def test_what_pytorch_does_not_trace_is_no_fault() -> None:
    row = measured("corrcoef", "forward")
    assert row.traced == 0 and row.untraced and not row.wrong


def test_tensors_without_strides_are_no_defect_but_not_whole() -> None:
    row = measured("to_sparse", "forward")
    assert (row.traced, row.without_fallback) == (2, 0) and not row.wrong
    assert "of layout sparse_coo, and opset 1.0 leaves out sparse layouts" in next(iter(row.stranger))


def test_calls_of_the_runtime_are_counted_apart() -> None:
    row = measured("tensor_split", "forward")
    assert row.without_fallback == row.traced and row.host.keys() == {"aten._local_scalar_dense.default"}


def test_cells_of_an_operator() -> None:
    cells = measure.work(Job("cpp", "sin", TABLE), lambda doing: None)
    verdicts = {c["dtype"]: c["verdict"] for c in cells}
    assert verdicts["f32"] == verdicts["i64"] == "loops" and verdicts["c64"] == "extern"


def test_a_graph_backend_says_yes_or_no() -> None:
    picky = keel.Backend(
        name="picky",
        device="cpu",
        supports=lambda call: Refusal("No.") if "cos" in call.name else None,
        compile=lambda gm: gm.forward,
    )
    found = {
        c.op: c.verdict
        for c in keel.coverage.cells(picky, [keel.opset.MEMBERS["sin"], keel.opset.MEMBERS["cos"]])
        if c.dtype is not None and c.dtype.is_floating_point
    }
    assert found == {"sin": "taken", "cos": "refused"}
