"""``keel selftest``: what it refuses."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from keel import KeelError
from keel_selftest.cli import app


def test_it_refuses_to_resume_what_lies_nowhere() -> None:
    result = CliRunner().invoke(app, ["--resume"])
    assert result.exit_code == 2 and "--out" in result.output


def test_it_refuses_patterns_that_nothing_fits() -> None:
    result = CliRunner().invoke(app, ["--mutant", "no-such-*"])
    assert result.exit_code == 1 and "no-such" in str(result.exception)


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("mine")
    result = CliRunner().invoke(app, ["--out", str(tmp_path)])
    assert isinstance(result.exception, KeelError) and "does not write into" in str(result.exception)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["mine"]
