"""Many mutated files, the same ones for the same seed, over several processes; and what came of them, counted."""

from __future__ import annotations

import gc
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .mutate import of_seed
from .watch import LIMIT, Watch

CHUNK = 500
MAX_EXAMPLES = 20


@dataclass
class Tally:
    """What came of some files of one loader.  ``bad`` are examples: the file's number and what was wrong."""

    loader: str
    files: int = 0
    accepted: int = 0
    refused: int = 0
    raw: int = 0
    slow: int = 0
    ran: int = 0
    died: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("files", "accepted", "refused", "raw", "slow", "ran", "died", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        self.codes += other.codes
        self.bad = (self.bad + other.bad)[:MAX_EXAMPLES]

    @property
    def is_clean(self) -> bool:
        return not (self.raw or self.slow or self.ran or self.died)

    def as_json(self) -> dict[str, Any]:
        return {
            "loader": self.loader,
            "files": self.files,
            "taken": self.accepted,
            "refused": self.refused,
            "raw errors": self.raw,
            "over one second": self.slow,
            "ran code": self.ran,
            "processes died": self.died,
            "slowest": round(self.slowest, 3),
            "seconds": round(self.seconds, 1),
            "codes": dict(sorted(self.codes.items())),
            "bad": [list(b) for b in self.bad],
        }


def file_of(loader: str, seed: int, number: int) -> bytes:
    """The mutated file of that number."""
    from .loaders import LOADERS

    return of_seed(_seeds(loader), LOADERS[loader].mutate, random.Random(f"{seed}/{loader}/{number}"))


@cache
def _seeds(loader: str) -> tuple[bytes, ...]:
    from .loaders import LOADERS

    return tuple(LOADERS[loader].seeds())


@cache
def _watch() -> Watch:
    folder = tempfile.mkdtemp(prefix="keel-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    return Watch(Path(folder, "file"))


def read_files(loader: str, seed: int, first: int, count: int) -> Tally:
    """Reads files ``first`` to ``first + count``."""
    from .loaders import LOADERS

    tally, watch = Tally(loader), _watch()
    load, lay_out = LOADERS[loader].load, LOADERS[loader].lay_out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in _seeds(loader):  # what is imported at the first use of all is, now
            watch.file.write_bytes(data)
            load(lay_out(watch.file))
        gc.collect()
        gc.freeze()  # what is here already is not looked through again
        for number in range(first, first + count):
            run = watch.read(load, file_of(loader, seed, number), lay_out)
            tally.files += 1
            tally.accepted += run.ending == "taken"
            tally.refused += run.ending == "refused"
            tally.raw += run.ending == "raw error"
            tally.slow += run.seconds > LIMIT
            tally.ran += bool(run.executed)
            tally.slowest, tally.seconds = max(tally.slowest, run.seconds), tally.seconds + run.seconds
            if run.ending == "refused":
                tally.codes[run.error.partition("[")[2].partition("]")[0]] += 1
            if run.bad and len(tally.bad) < MAX_EXAMPLES:
                tally.bad.append(
                    (number, f"{run.ending} {run.seconds:.2f} s {run.error[:300]} {' '.join(run.executed)}")
                )
    return tally


def campaign(counts: Mapping[str, int], seed: int, jobs: int) -> Iterator[Tally]:
    """Reads the given number of files with each loader, chunk by chunk, and returns the tallies.  A chunk whose process
    died counts one death.
    """
    chunks = [
        (loader, seed, first, min(CHUNK, count - first))
        for loader, count in counts.items()
        for first in range(0, count, CHUNK)
    ]
    chunks.sort(key=lambda chunk: chunk[2] / counts[chunk[0]])  # so that each loader is under way from the beginning
    while chunks:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = {chunk: pool.submit(read_files, *chunk) for chunk in chunks}
            left: list[tuple[str, int, int, int]] = []
            for chunk, future in futures.items():
                try:
                    yield future.result()
                except BrokenProcessPool:
                    left.append(chunk)
        if left == chunks:  # the first one's process dies each time
            loader, _, first, _ = chunks[0]
            yield Tally(loader, died=1, bad=[(first, "The process died in this chunk.")])
            left = left[1:]
        chunks = left
