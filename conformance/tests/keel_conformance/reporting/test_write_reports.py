"""A run leaves its reports beside its log, and can be certified from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from keel_conformance.cases.plan import plan
from keel_conformance.cli import app
from keel_conformance.harness.journal import Journal
from keel_conformance.harness.run import Shard, head_of
from keel_conformance.reporting.write_reports import reports
from keel_conformance.results.verdict import Status, Verdict

CASES = plan(profile="core", tier="smoke", ops=["neg"])
ABOUT = {"profile": "core", "tier": "smoke", "seed": 0, "ops": ["neg"]}


def made(folder: Path, status: Status) -> list[Verdict]:
    journal = Journal.opened(folder, head_of(CASES, "eager", Shard(), **ABOUT))
    journal.begin([c.id for c in CASES])
    verdicts = [
        Verdict(c.id, status if k == 0 else "pass", "exact", "At (0,) it is 1, not 2." if k == 0 else "")
        for k, c in enumerate(CASES)
    ]
    journal.end(verdicts)
    journal.close()
    return verdicts


def test_all_files_are_written(tmp_path: Path) -> None:
    verdicts = made(tmp_path, "fail")
    said = reports(tmp_path, CASES, verdicts, spent=2.0, seconds=0.0)
    assert "1 of 1 failures have a script" in said[1]
    found = json.loads((tmp_path / "report.json").read_text())
    (bad,) = found["verdicts"]
    assert (tmp_path / bad["script"]).is_file() and bad["script"] in (tmp_path / "report.html").read_text()
    assert f"Script: {bad['script']}" in (tmp_path / "junit.xml").read_text()


def test_the_command_line_certifies_and_verifies(tmp_path: Path) -> None:
    reports(tmp_path, CASES, made(tmp_path, "pass"), seconds=0.0)
    done = CliRunner().invoke(app, ["certify", str(tmp_path)])
    assert (
        done.exit_code == 0
        and "eager is right in all that it claims of core, tier smoke, limited to neg" in done.output
    )
    page = tmp_path / "report.html"
    page.write_text(page.read_text() + " ")
    done = CliRunner().invoke(app, ["verify", str(tmp_path), "--share", "0", "--least", "0"])
    assert done.exit_code == 1 and "report.html was changed." in done.output
