"""A run goes on from the lines that an earlier one left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keel import KeelError
from keel_bench.closure.cli import _row
from keel_bench.closure.jobs import Job, Row
from keel_conformance.workers.pool import Outcome
from keel_conformance.workers.result_log import ResultLog

GOOD = Job("opinfo", "sin", samples=2), Outcome(Row(samples=2, traced=2, ends_in={"aten.sin.default": 2}), seconds=0.5)
LOST = Job("opinfo", "cos"), Outcome(None, "It died of SIGABRT while tracing f32[3].", "tracing f32[3]", 1.0)
TIMED = Job("time", "bert"), Outcome({"alone": 2.0, "adds": 1.0})


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = ResultLog.for_file(tmp_path / "bars.json", Job, _row)
    assert log.path == tmp_path / "bars.json.log" and log.resume() == {}
    log.append(*GOOD)
    log.append(*LOST)
    with log.path.open("a") as file:
        file.write('{"job": {"universe": "opin')  # the run ended in the middle of a line
    assert log.resume() == dict((GOOD, LOST))
    log.append(*TIMED)
    assert log.resume() == dict((GOOD, LOST, TIMED))
    log.begin()
    assert log.resume() == {}


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"job": {"model": 3}, "outcome": {"row": null}}',
        '{"job": [], "outcome": {"row": null}}',
        '{"job": {"universe": [], "name": "x"}, "outcome": {"row": null}}',
        '{"job": {}, "outcome": 3}',
        '{"job": {"universe": "time", "name": "x"}, "outcome": {"row": {"more": 1}}}',
        '{"job": {"\\ud800": 1}, "outcome": {"row": null}}',
    ],
)
def test_a_line_of_no_job_is_said(line: str, tmp_path: Path) -> None:
    log = ResultLog.for_file(tmp_path / "bars.json", Job, lambda job, row: Row(**row))
    log.append(*GOOD)
    with log.path.open("a") as file:
        file.write("\0\0\0\n" + line + "\n")  # the first is what a file system lost
    with pytest.raises(KeelError, match="line 3") as raised:
        log.resume()
    assert raised.value.code == "bad-file" and str(raised.value).encode()


@pytest.mark.parametrize(
    "put",
    [os.mkfifo, os.mkdir, lambda p: os.symlink("/dev/zero", p), lambda p: os.symlink(p, p)],
    ids=["pipe", "folder", "device", "loop"],
)
def test_a_log_that_is_no_file_is_said(put: Callable[[Path], Any], tmp_path: Path) -> None:
    log = ResultLog.for_file(tmp_path / "bars.json", Job, lambda job, row: Row(**row))
    put(log.path)
    with pytest.raises(KeelError, match="It is not the log of a measurement") as raised:
        log.resume()
    assert raised.value.code == "bad-file"
