"""The write-ahead log of a run: a line before and after each batch, from which a run that was killed goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from keel import KeelError, documents

from ..results.histogram import LABELS
from ..results.verdict import PARTS, REFUSED, STATUSES, Verdict

FILE = "log.jsonl"


@dataclass
class Journal:
    """The lines in ``folder``. ``head`` is what the run is about; ``verdicts`` those of an earlier run of the same, by
    case; ``started`` how often the cases were begun in all runs.
    """

    folder: Path
    head: Mapping[str, Any]
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    started: int = 0
    _file: TextIOWrapper | None = None

    @staticmethod
    def opened(folder: Path, head: Mapping[str, Any], *, resume: bool = False) -> Journal:
        """Returns a new log, or with ``resume`` the log of the earlier run in ``folder``. Raises KeelError[bad-option]
        if the earlier run has a different head, and KeelError[bad-file] if its log cannot be read.
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
        self.started += len(cases)
        self._write({"begin": list(cases)})

    def end(self, verdicts: Iterable[Verdict]) -> None:
        listed = list(verdicts)
        self.verdicts |= {v.case: v for v in listed}
        self._write({"end": [asdict(v) for v in listed]})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # to the system, which outlives whoever is killed here

    def _take(self, path: Path) -> None:
        head, self.verdicts, self.started = read(path)
        with path.open("rb+") as file:  # a last line that was cut off is taken away
            file.truncate(file.read().rfind(b"\n") + 1)
        if head is not None and (other := {k for k in {*head, *self.head} if head.get(k) != self.head.get(k)}):
            raise KeelError(
                "bad-option",
                f"The run in {path.parent} is another one.",
                {k: f"{head.get(k)} there, {self.head.get(k)} asked for" for k in sorted(other)},
                do="Give the options of that run, or leave out --resume to start a new run.",
            )


def read(path: Path) -> tuple[Mapping[str, Any] | None, dict[str, Verdict], int]:
    """Returns the head of a log, its verdicts by case, and how often cases were begun. A last line that was cut off is
    ignored. Raises KeelError[bad-file] with the line that cannot be read.
    """
    head: Mapping[str, Any] | None = None
    verdicts: dict[str, Verdict] = {}
    started = 0
    try:
        for kind, entry in entries(documents.bytes_of(path, MOST_BYTES)):
            match kind:
                case "run":
                    head = entry
                case "begin":
                    started += len(entry)
                case "end":
                    for v in entry:
                        if v.status not in STATUSES:
                            raise documents.Malformed(v.case[:200], f"There is no status {v.status[:80]!r}.")
                        verdicts[v.case] = v
    except documents.Malformed as e:
        raise documents.bad_file(path, e, what="It is not the log of a run.") from e
    return head, verdicts, started


MOST_BYTES = 1 << 29


def entries(held: bytes) -> Iterator[tuple[str, Any]]:
    """The lines of a log: ``run`` with what it is about, ``begin`` with ids of cases, ``end`` with verdicts. Raises
    Malformed, which names the line.
    """
    for number, line in enumerate(held.split(b"\n")[:-1], 1):
        place = f"line {number}"
        entry = documents.Item(documents.parsed(line, place, constants=True), place).record((), ("run", "begin", "end"))
        if len(entry) != 1:
            raise documents.Malformed(place, "It is a line that no run writes.")
        ((kind, item),) = entry.items()
        match kind:
            case "run":
                yield kind, _head(item)
            case "begin":
                yield kind, [case.text(1 << 12) for case in item.items()]
            case _:
                yield kind, [_verdict(verdict) for verdict in item.items()]


def _head(item: documents.Item) -> Mapping[str, Any]:
    """What a run is about: its values are texts, numbers and lists of texts."""
    fields, result = item.record((), ("cases", "seed", "ops", "shard", *_TEXTS)), dict[str, Any]()
    for name, value in fields.items():
        if name in ("cases", "seed"):
            result[name] = value.integer(-(1 << 63), 1 << 63)
        elif name == "ops":
            result[name] = [pattern.prose(1 << 10) for pattern in value.items(1 << 12)]
        elif name == "shard":
            result[name] = value.like(_SHARD, "a shard, as 1/3")
        else:
            result[name] = value.prose(1 << 10)
    return result


_TEXTS = ("backend", "declared", "digest", "torch", "torch-keel", "python", "profile", "tier")
_SHARD = re.compile(r"[0-9]{1,6}/[0-9]{1,6}")


def stating(path: Path, head: Mapping[str, Any] | None, *names: str) -> Mapping[str, Any]:
    """Returns ``head`` if it has these fields. Raises KeelError[bad-file] otherwise."""
    if head is None or (lacking := [k for k in names if k not in head]):
        why = "It has no head." if head is None else f"Its head lacks {', '.join(lacking)}."
        wrong = documents.Malformed("line 1", why)
        raise documents.bad_file(path, wrong, what="It is not the log of a run.", do="Run it again.")
    return head


def _verdict(item: documents.Item) -> Verdict:
    fields = item.record(("case", "status"), ("oracle", "sentence", "clause", "figures", "seconds"))
    texts = {k: fields[k].prose(1 << 20) for k in ("case", "status", "oracle", "sentence", "clause") if k in fields}
    figures = (
        {k: _figure(k, f) for k, f in fields["figures"].record((), _FIGURES).items() if f.value is not None}
        if "figures" in fields
        else {}
    )
    seconds = fields["seconds"].number(0.0) if "seconds" in fields else 0.0
    return Verdict(**texts, figures=figures, seconds=seconds)  # type: ignore[arg-type]


_MEASURES, _PLACES = ("ulps", "ratio", "masked"), ("call", "result", "other", "other_call")
_FIGURES = (*_MEASURES, *_PLACES, "wrong", PARTS, "fault", "fact", REFUSED, "index", "histogram")


def _figure(figure: str, item: documents.Item) -> Any:
    """A figure of a verdict as oracles give it.  Raises Malformed."""
    match figure:
        case "fault" | "fact":
            return item.prose(200)
        case "refused":
            return item.prose(1 << 12)
        case "index":
            return [place.integer(0) for place in item.items(64)]
        case "histogram":
            return [count.integer(0) for count in item.items(count=len(LABELS))]
        case "wrong" | "parts":
            return item.integer(0)
    if figure in _PLACES:
        return item.integer(0, 1 << 16)
    if type(item.value) not in (int, float):  # floats may also be NaN or infinite
        item.refuse("It is not a number.")
    return float(item.value) if isinstance(item.value, float) else item.integer()
