"""A run that is interrupted shows and writes what it has seen, and another one goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
import worker_tasks
from rich.console import Console

from keel_conformance.report import Criterion
from keel_conformance.workers.command_run import PlainProgress, running
from keel_conformance.workers.pool import Outcome

HERE = Path(__file__).parent
COMMAND = """
import sys
from pathlib import Path
import typer
import worker_tasks
from keel_conformance.report import Criterion
from keel_conformance.workers.command_run import running
from keel_conformance.workers.spawn import forked

try:
    with running(Path(sys.argv[1]), worker_tasks.Task, worker_tasks.row, resume="resume" in sys.argv) as run:
        todo = [worker_tasks.Task(name) for name in sys.argv[2].split('|')]
        found = run.measure("tasks", todo, forked(worker_tasks.do), lambda job, o: f"done {job.name}", time_limit=60)
    run.finish([Criterion(job.name, o.row, "", None) for job, o in found.items()])
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def command(file: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(file), *args],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )


def until(holds: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit and (process is None or process.poll() is None)
        time.sleep(0.05)


def bars(file: Path) -> dict[str, Any]:
    return {bar["name"]: bar["value"] for bar in json.loads(file.read_text())["bars"]}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has_seen(end: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    process = command(file, "one|two|hang|three")
    log = file.with_name("bars.json.log")
    until(lambda: log.exists() and log.read_text().count("\n") == 2, process)
    process.send_signal(end)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + end
    assert f"stopped by {end.name}; --resume goes on" in said
    assert bars(file) == {"one": "ONE", "two": "TWO", "jobs ended": "2 of 4"}

    process = command(file, "one|two|three", "resume")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "done three" in said and "done two" not in said
    assert bars(file) == {"one": "ONE", "two": "TWO", "three": "THREE"}


@pytest.mark.parametrize("deed", ["hang", "freeze"])
def test_a_run_that_is_killed_leaves_its_lines_and_no_process(deed: str, tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    process = command(file, f"one|{deed} {tmp_path / 'pid'}")
    until(lambda: (tmp_path / "pid").exists(), process)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not worker_tasks.goes_on((tmp_path / "pid").read_text()))
    assert json.loads(file.with_name("bars.json.log").read_text())["outcome"]["row"] == "ONE" and not file.exists()


def test_what_died_is_measured_again_if_that_is_asked(tmp_path: Path) -> None:
    import keel_bench.jobs as bench

    good, bad = bench.Job("run", "bert", "cpp"), bench.Job("run", "vit", "cpp")
    file = tmp_path / "bars.json"
    with running(file, bench.Job, lambda job, row: row) as run:
        assert run.log is not None
        run.log.append(good, Outcome({"cpp": 1.0}))
        run.log.append(bad, Outcome(None, "It died of SIGSEGV while measuring.", "measuring"))
    for retry, kept in ((False, [good, bad]), (True, [good])):
        with running(file, bench.Job, lambda job, row: row, resume=True, retry=retry) as run:
            assert list(run.earlier) == kept


def test_a_run_without_a_file_cannot_be_resumed() -> None:
    with pytest.raises(typer.BadParameter, match="--json says"), running(None, dict, lambda job, row: row, resume=True):
        pass


def test_a_bar_that_falls_short_is_an_exit(tmp_path: Path) -> None:
    file = tmp_path / "bars.json"
    with running(file, dict, lambda job, row: row) as run:
        pass
    run.finish([Criterion("kept", 1, "1", True)], rows=[{"name": "sin"}])
    assert json.loads(file.read_text())["rows"] == [{"name": "sin"}]
    with pytest.raises(typer.Exit):
        run.finish([Criterion("broken", 0, "1", False)])


def test_without_a_terminal_progress_is_lines() -> None:
    clock = iter([0.0, 1.0, 31.0, 31.0, 31.0, 40.0])
    out = StringIO()
    progress = PlainProgress(Console(file=out, width=100), "acme", 4000, now=lambda: next(clock))
    for bad in (0, 2, 0):
        progress.advance(500, bad)
    assert out.getvalue() == "acme: 1,000 of 4,000, 25.0 %, 2 bad, after 31 s\n"
