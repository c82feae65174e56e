"""``keel conform``: what it exits with, and what it says."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import faulty_backends
import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from keel import KeelError
from keel_conformance.cli import app, status
from keel_conformance.devices import check_registered
from keel_conformance.harness.backend_under_test import BackendUnderTest
from keel_conformance.harness.journal import Journal
from keel_conformance.harness.parallel_plan import plan_in_parallel
from keel_conformance.harness.run import Shard, head_of
from keel_conformance.harness.summary import show
from keel_conformance.results.verdict import STATUSES, Verdict

PASS, FAIL, FREE = (
    Verdict("neg/1", "pass"),
    Verdict("neg/2", "fail", "ulp", "It is off.", "neg.C1"),
    Verdict("neg/3", "not claimed", "placement", "acme has no aten.neg.default."),
)


def conform(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def test_the_exit_status_says_whether_it_conforms() -> None:
    assert status([PASS, FREE], []) == 0 and status([PASS, FAIL], []) == 1
    assert status([FREE, Verdict("x", "not run")], []) == 2 and status([], []) == 2
    assert status([PASS], ["A waiver is stale."]) == 1


def test_patterns_choose_operators() -> None:
    assert {c.op for c in plan_in_parallel(profile="core", tier="smoke", seed=0, ops=["neg", "ab?"])} == {"neg", "abs"}
    with pytest.raises(KeelError, match="No case"):
        plan_in_parallel(profile="core", tier="smoke", seed=0, ops=["no*such"])


def test_all_fourteen_are_counted() -> None:
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    show(console, [PASS, FAIL, FREE], 5, ["3 cases in 1 s."], ["A waiver is stale."])
    console.file.close()
    text = console.export_text()
    for name in STATUSES:
        assert f"│ {name} " in text
    assert "5 cases" in text and "It is off. [neg.C1]" in text and "A waiver is stale." in text
    assert "not claimed, 1 of neg: acme has no aten.neg.default." in text
    row = next(line for line in text.splitlines() if "│ not run " in line)
    assert [cell.strip() for cell in row.split("│")[1:4]] == ["not run", "2", "40.0 %"]


def test_a_run_and_its_shards_say_the_same(tmp_path: Path) -> None:
    about = ("--backend", "faulty_backends:refuses", "--tier", "smoke", "--op", "neg", "--op", "abs", "--jobs", "1")
    for k in (1, 2):
        said = conform(*about, "--shard", f"{k}/2", "--out", str(tmp_path / str(k)))
        assert said.exit_code == 2, said.output
    said = conform("merge", str(tmp_path / "1"), str(tmp_path / "2"), "--out", str(tmp_path / "both"))
    assert said.exit_code == 2 and "not claimed" in said.stdout, said.output
    lines = [json.loads(line) for line in (tmp_path / "both" / "log.jsonl").read_text().splitlines()]
    cases = plan_in_parallel(profile="core", tier="smoke", seed=0, ops=["neg", "abs"])
    assert lines[0]["run"]["cases"] == len(cases)
    assert [v["case"] for v in lines[1]["end"]] == [c.id for c in cases]


def test_a_backend_is_not_imported_because_a_log_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "marks_its_import.py").write_text(
        f"open({str(tmp_path / 'imported')!r}, 'a').close()\nfrom keel_eager import backend\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    named, some = "marks_its_import:backend", plan_in_parallel(profile="core", tier="smoke", seed=0, ops=["neg"])
    journal = Journal.opened(
        tmp_path / "run", head_of(some, named, Shard(1, 3), profile="core", tier="smoke", seed=0, ops=["neg"])
    )
    journal.end([Verdict(c.id, "fail", "ulp", "It is off.") for c in some])
    journal.close()
    said = conform("merge", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert said.exit_code == 1 and "say --backend marks_its_import:backend" in " ".join(said.output.split())
    assert "Shards are missing: 2/3, 3/3." in said.output
    assert not (tmp_path / "imported").exists() and (tmp_path / "out" / "report.html").exists()
    said = conform("merge", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--backend", "other:backend")
    assert isinstance(said.exception, KeelError) and "not of other:backend" in str(said.exception)
    assert not (tmp_path / "imported").exists()
    said = conform("merge", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--backend", named)
    assert said.exit_code == 1 and (tmp_path / "imported").exists() and list((tmp_path / "out" / "repro").glob("*.py"))


def test_the_front_page_says_what_a_backend_declares(tmp_path: Path) -> None:
    def judged(backend: str) -> Result:
        how = ["--op", "reciprocal", "--tier", "smoke", "--minimize", "0", "--jobs", "1"]
        return conform("--backend", f"faulty_backends:{backend}", *how, "--out", str(tmp_path / backend))

    assert judged("flushes").exit_code == 1 and judged("flushes_more").exit_code == 1
    run = judged("declares")
    assert run.exit_code == 0, run.output
    words = "flushes subnormals of float32, float64 and bfloat16"
    assert f"It declares that it {words}, has no float64." in " ".join(run.output.split())
    report = json.loads((tmp_path / "declares" / "report.json").read_text())
    assert report["declarations"][0] == f"It declares that it {words}, has no float64."
    assert any(f"the verdict pass only because it {words}: reciprocal." in s for s in report["declarations"][1:])
    page = (tmp_path / "declares" / "report.html").read_text()
    assert all(sentence in page for sentence in report["declarations"])


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    mine = {tmp_path / "log.jsonl": "mine", tmp_path / "results" / "mine": "x"}
    for file, text in mine.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    for args in (("--backend", "eager"), ("--backend", "eager", "--resume")):
        said = conform(*args, "--out", str(tmp_path))
        assert isinstance(said.exception, KeelError), said.output
        assert "does not write into" in str(said.exception) and said.exception.code == "bad-option"
    assert {p: p.read_text() for p in tmp_path.rglob("*") if p.is_file()} == mine


def test_what_cannot_be_run_is_said_at_once() -> None:
    said = conform("--backend", "cppp")
    assert isinstance(said.exception, KeelError) and "Did you mean 'cpp'?" in str(said.exception)
    for args, why in (
        ((), "Which backend"),
        (("--backend", "cpp", "--resume"), "--out says"),
        (("--backend", "cpp", "--tier", "tiny"), "no tier 'tiny'"),
    ):
        said = conform(*args)
        assert said.exit_code == 2 and why in " ".join(said.output.replace("│", " ").split())


def test_a_device_that_only_the_plugin_registers_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = BackendUnderTest("acme", replace(faulty_backends.well, name="acme", device="acme"))
    monkeypatch.setattr("keel_conformance.cli.load_backend", lambda text: elsewhere)
    raised = conform("--backend", "acme", "--tier", "smoke", "--op", "neg").exception
    assert isinstance(raised, KeelError) and raised.code == "not-here"
    assert "device 'acme'" in str(raised) and "torch.backends" in str(raised) and "Expected one of" in str(raised)


def test_a_device_that_import_torch_registers_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vendor.py").write_text(
        "import torch\ndef register(): torch.utils.rename_privateuse1_backend('acme')\n"
    )
    info = tmp_path / "vendor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nacme = vendor:register\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    check_registered("acme", "acme")
    with pytest.raises(KeelError, match="import torch"):
        check_registered("acme", "acme2")
