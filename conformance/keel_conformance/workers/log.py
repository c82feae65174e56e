"""A line for each job as it ends, in a file that survives however the run does: from it another run goes on."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .pool import Outcome


@dataclass(frozen=True)
class Log:
    """The lines at ``path``. ``job`` makes a job of its fields again, ``row`` a row of a job of plain data."""

    path: Path
    job: Callable[..., Any]
    row: Callable[[Any, Any], Any]

    @staticmethod
    def beside(file: Path, job: Callable[..., Any], row: Callable[[Any, Any], Any]) -> Log:
        """The lines of the run whose bars are written to ``file``."""
        return Log(file.with_name(file.name + ".log"), job, row)

    def begin(self) -> None:
        self.path.unlink(missing_ok=True)

    def resume(self) -> dict[Any, Outcome]:
        """What the lines of an earlier run say; a last line that was cut off is taken away."""
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            self.path.write_bytes(b"".join(whole))
        found: dict[Any, Outcome] = {}
        for line in whole:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:                      # what the file system lost is measured again
                continue
            job, outcome = self.job(**entry["job"]), Outcome(**entry["outcome"])
            row = outcome.row if outcome.row is None else self.row(job, outcome.row)
            found[job] = Outcome(row, outcome.failure, outcome.doing, outcome.seconds)
        return found

    def append(self, job: Any, outcome: Outcome) -> None:
        with self.path.open("a") as log:
            log.write(json.dumps({"job": asdict(job), "outcome": asdict(outcome)}) + "\n")
