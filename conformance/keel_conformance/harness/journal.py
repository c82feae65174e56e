"""The write-ahead log of a run: a line before and after each batch, from which a run that was killed goes on."""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from keel import KeelError

from ..results.verdict import Verdict

FILE = "log.jsonl"


@dataclass
class Journal:
    """The lines in ``folder``. ``head`` is what the run is about; ``verdicts`` those of an earlier run of the same, by
    case; ``begun`` how often the cases were begun in all runs.
    """

    folder: Path
    head: Mapping[str, Any]
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    begun: int = 0
    _file: TextIOWrapper | None = None

    @staticmethod
    def opened(folder: Path, head: Mapping[str, Any], *, resume: bool = False) -> Journal:
        """A log that is begun, or one that is gone on with. Raises KeelError[bad-option] if the earlier run in
        ``folder`` was about something else.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path, journal = folder / FILE, Journal(folder, json.loads(json.dumps(head)))
        if resume and path.exists():
            journal._take(path)
        else:
            path.unlink(missing_ok=True)
        fresh = not path.exists() or not path.stat().st_size
        journal._file = path.open("a", encoding="utf-8")
        if fresh:
            journal._write({"run": journal.head})
        return journal

    def begin(self, cases: Sequence[str]) -> None:
        self.begun += len(cases)
        self._write({"begin": list(cases)})

    def end(self, verdicts: Iterable[Verdict]) -> None:
        found = list(verdicts)
        self.verdicts |= {v.case: v for v in found}
        self._write({"end": [asdict(v) for v in found]})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()                                    # to the system, which outlives whoever is killed here

    def _take(self, path: Path) -> None:
        head, self.verdicts, self.begun = read(path)
        if head is not None and (other := {k for k in {*head, *self.head} if head.get(k) != self.head.get(k)}):
            raise KeelError("bad-option", f"The run in {path.parent} is another one.",
                            {k: f"{head.get(k)} there, {self.head.get(k)} asked for" for k in sorted(other)},
                            do="Give the options of that run, or leave --resume out to begin anew.")


def read(path: Path) -> tuple[Mapping[str, Any] | None, dict[str, Verdict], int]:
    """What a log says: what its run is about, the verdicts by case, how often cases were begun. A last line that was
    cut off is taken away.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        path.write_bytes(b"".join(lines[:-1]))
        lines = lines[:-1]
    head: Mapping[str, Any] | None = None
    verdicts: dict[str, Verdict] = {}
    begun = 0
    for line in lines:
        match json.loads(line):
            case {"run": dict(found)}:
                head = found
            case {"begin": list(cases)}:
                begun += len(cases)
            case {"end": list(found)}:
                verdicts |= {v["case"]: Verdict(**v) for v in found}
    return head, verdicts, begun
