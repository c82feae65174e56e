"""A run goes on from the lines that it left, and its file has a row for each job."""
from __future__ import annotations

import json
from pathlib import Path

from keel_conformance.bench.jobs import Bar
from keel_conformance.closure import record
from keel_conformance.closure.jobs import Job, Outcome, Row

GOOD = Job("opinfo", "sin", samples=2), Outcome(Row(samples=2, traced=2, ends_in={"aten.sin.default": 2}), seconds=0.5)
LOST = Job("opinfo", "cos"), Outcome(None, "It died of SIGABRT while tracing f32[3].", "tracing f32[3]", 1.0)
TIMED = Job("time", "bert"), Outcome({"alone": 2.0, "adds": 1.0})


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    assert record.done(file) == {}
    for job, outcome in (GOOD, LOST, TIMED):
        record.append(file, job, outcome)
    with record.log_of(file).open("a") as log:
        log.write('{"job": {"universe": "opin')               # the run ended in the middle of a line
    assert record.done(file) == dict((GOOD, LOST, TIMED))


def test_the_file_has_bars_and_rows(tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    record.write(file, [Bar("a bar", 1, "1", True)], dict((GOOD, LOST, TIMED)), 3.0)
    found = json.loads(file.read_text())
    assert found["bars"] == [{"name": "a bar", "value": 1, "target": "1", "holds": True, "note": ""}]
    good, lost, timed = found["rows"]
    assert (good["name"], good["of"], good["samples"], good["failure"]) == ("sin", 2, 2, "")
    assert lost["doing"] == "tracing f32[3]" and timed["adds"] == 1.0
