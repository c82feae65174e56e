"""The figures of a backend's page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keel_bench import backend_page


def test_a_backend_is_counted_without_blank_lines_and_comments() -> None:
    assert 300 < backend_page.lines("opencl") < 750  # what docs/how/run-on-opencl.md says
    assert backend_page.lines("interp") < backend_page.lines("cpp")


@pytest.mark.slow
def test_the_figures_are_printed_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_page, "covered", lambda backend: {"f32": (3, 4)})
    monkeypatch.setattr(backend_page, "COMPILERS", ("eager",))
    out = tmp_path / "figures.json"
    arguments = ["--backend", "interp", "--model", "bert", "--scale", "tiny", "--rounds", "1", "--json", str(out)]
    result = CliRunner().invoke(backend_page.app, arguments)
    assert result.exit_code == 0, result.output
    assert "f32: 3 of 4 primitives" in result.output
    seconds = json.loads(out.read_text())["speed"]["bert"]
    assert set(seconds) == {"eager", "interp"} and min(seconds.values()) > 0
