"""What was measured, in files: a line for each job as it ends, from which a run goes on, and all of it at the end."""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..bench import report
from ..bench.jobs import Bar
from .jobs import Job, Outcome, Outcomes, Row


def log_of(path: Path) -> Path:
    """The lines of the run whose bars are written to ``path``."""
    return path.with_name(path.name + ".log")


def append(path: Path, job: Job, outcome: Outcome) -> None:
    with log_of(path).open("a") as log:
        log.write(json.dumps({"job": asdict(job), "outcome": asdict(outcome)}) + "\n")


def done(path: Path) -> dict[Job, Outcome]:
    """What the lines of an earlier run say; a last line that was cut off does not count."""
    found: dict[Job, Outcome] = {}
    lines = log_of(path).read_text().splitlines() if log_of(path).exists() else []
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        job, outcome = Job(**entry["job"]), Outcome(**entry["outcome"])
        found[job] = Outcome(_row(job, outcome.row), outcome.failure, outcome.doing, outcome.seconds)
    return found


def _row(job: Job, row: Any) -> Any:
    return row if row is None or job.universe == "time" else Row(**row)


def write(path: Path, bars: Sequence[Bar], outcomes: Outcomes, seconds: float) -> None:
    """The bars with the facts of the machine, and a row for each job."""
    report.write(path, bars, seconds)
    record: dict[str, Any] = json.loads(path.read_text())
    record["rows"] = [_flat(job, outcome) for job, outcome in outcomes.items()]
    path.write_text(json.dumps(record, indent=1) + "\n")


def _flat(job: Job, outcome: Outcome) -> dict[str, Any]:
    row = asdict(outcome.row) if isinstance(outcome.row, Row) else outcome.row or {}
    asked = {**asdict(job), "of": job.samples}
    del asked["samples"]
    return {**asked, "failure": outcome.failure, "doing": outcome.doing, "elapsed": round(outcome.seconds, 2), **row}
