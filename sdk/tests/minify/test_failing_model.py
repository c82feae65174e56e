"""A model that fails becomes one call, the right stage, and a script that exits with 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.errors import KeelError
from keel.minify import LINES
from keel.minify.failing_model import minify
from keel.minify.failure import Subject
from keel.minify.reduction_report import write


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.slow  # starts Python four times
def test_a_wrong_layer_norm_is_named(where: None, tmp_path: Path) -> None:
    said = list[str]()
    reduction = minify("planted:model", Subject(("planted:wrong",)), seconds=60.0, say=said.append)
    assert reduction.failure.kind == "wrong" and reduction.fault.stage == "plugin" and said
    assert [call.op for call in reduction.program.calls] == ["aten.native_layer_norm.default", "getitem"]
    assert reduction.shown and reduction.right_without and reduction.text.count("\n") <= LINES
    write(reduction, tmp_path)
    assert "planted:wrong" in (tmp_path / "report.md").read_text() and (tmp_path / "failing.py").exists()
    assert list((tmp_path / "dumps" / "failing").rglob("*captured.fx"))


@pytest.mark.slow  # starts Python
def test_a_right_model_is_refused(where: None) -> None:
    with pytest.raises(KeelError, match="Nothing fails"):
        minify("planted:model", Subject(("planted:right",)), seconds=30.0, say=lambda text: None)
