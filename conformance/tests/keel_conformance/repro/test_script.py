"""Scripts are the same program for a backend of torch.compile, with Keel and without."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from keel.minify import assemble
from keel_conformance.cases.case import Case
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.repro import script
from keel_conformance.repro.replay import FailingCalls
from keel_conformance.results.verdict import Verdict


def case(op: str) -> Case:
    return next(c for c in plan(ops=[op]) if c.kind == "op" and c.dtype == "f32" and ("values", "random") in c.choice)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("op", "figures"), [("neg", {}), ("var_mean", {"result": 1}), ("softmax", {"call": 1})])
def test_aot_eager_passes(
    op: str, figures: dict[str, int], plain: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = case(op)
    calls = FailingCalls("aot_eager", c, (draw_inputs(c, 0), draw_inputs(c, 1)))
    text = script.of_calls(calls, Verdict(c.id, "fail", "ulp", "It differs.", figures=figures), plain=plain)
    assert ("keel" in text) is not plain and "torch.compile" in text if plain else "foreign" in text
    (tmp_path / "one.py").write_text(text)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(tmp_path / "one.py"), run_name="__main__")
    assert caught.value.code in (0, False), text
    assert "expected" in capsys.readouterr().out


def test_a_script_of_more_than_forty_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="41 lines"):
        assemble('"""A title."""', [], ["x = 1"] * 36)


def test_names_of_numbers_are_imported_where_they_stand_alone() -> None:
    text = assemble('"""A."""', [], ["x = [inf, -nan]", "y = x.isnan(), 'inf'"])
    assert "from math import inf, nan" in text
    assert "math" not in assemble('"""A."""', [], ["y = x.isinf(), 'nan'"])
