"""A line for each job as it ends, in a file that survives however the run does: from it another run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keel import KeelError, documents

from .pool import Outcome

MOST_BYTES = 1 << 29


@dataclass(frozen=True)
class ResultLog:
    """The lines at ``path``. ``job`` makes a job of its fields again, ``row`` a row of a job of plain data."""

    path: Path
    job: Callable[..., Any]
    row: Callable[[Any, Any], Any]

    @staticmethod
    def for_file(file: Path, job: Callable[..., Any], row: Callable[[Any, Any], Any]) -> ResultLog:
        """The lines of the run whose bars are written to ``file``."""
        return ResultLog(file.with_name(file.name + ".log"), job, row)

    def begin(self) -> None:
        self.path.unlink(missing_ok=True)

    def resume(self) -> dict[Any, Outcome]:
        """What the lines of an earlier run say; a last line that was cut off is taken away."""
        lines = self._read_outcomes().splitlines(keepends=True)
        complete = [line for line in lines if line.endswith(b"\n")]
        if len(complete) < len(lines):
            self.path.write_bytes(b"".join(complete))
        results: dict[Any, Outcome] = {}
        for number, line in enumerate(complete, 1):
            try:
                entry = documents.Item(documents.parsed(line, constants=True), f"line {number}")
            except documents.Malformed:  # what the file system lost is measured again
                continue
            try:
                job, outcome = self._outcome(entry)
            except documents.Malformed as e:
                raise self._error(e) from e
            results[job] = outcome
        return results

    def _read_outcomes(self) -> bytes:
        try:
            return documents.bytes_of(self.path, MOST_BYTES) if os.path.lexists(self.path) else b""
        except documents.Malformed as e:
            raise self._error(e) from e

    def _error(self, wrong: documents.Malformed) -> KeelError:
        return documents.bad_file(
            self.path, wrong, what="It is not the log of a measurement.", do="Delete it to measure everything again."
        )

    def _outcome(self, entry: documents.Item) -> tuple[Any, Outcome]:
        """The job and what came of it.  Raises Malformed."""
        fields = entry.record(("job", "outcome"))
        outcome = fields["outcome"].record(("row",), ("failure", "doing", "seconds", "end"))
        texts = {k: outcome[k].prose() for k in ("failure", "doing") if k in outcome}
        seconds = outcome["seconds"].number(0.0) if "seconds" in outcome else 0.0
        try:
            job, row = self.job(**fields["job"].value), outcome["row"].value
            hash(job)  # by which it is looked up
            return job, Outcome(row if row is None else self.row(job, row), **texts, seconds=seconds)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as e:
            why = f"It is of no job that there is ({type(e).__name__}: {e})."
            raise documents.Malformed(entry.place, ascii(why[:300])[1:-1]) from e

    def append(self, job: Any, outcome: Outcome) -> None:
        with self.path.open("a") as log:
            log.write(json.dumps({"job": asdict(job), "outcome": asdict(outcome)}) + "\n")
