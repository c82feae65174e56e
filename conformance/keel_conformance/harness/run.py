"""One run: cases on a backend, a verdict for each, all kept on disk as they come."""

from __future__ import annotations

import hashlib
import platform
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from keel import KeelError

from ..cases.case import Case
from ..results.verdict import Verdict
from .executor import run_queues
from .journal import Journal
from .protocol import Settings
from .ray_run import Cluster, run_on_cluster
from .scheduler import Scheduler, queues, run_queue

OnVerdicts = Callable[[Sequence[Verdict]], None]
RESULTS = "results"
"""The folder below a run's where results lie until they are judged."""


@dataclass(frozen=True)
class Shard:
    """The cases of one of several hosts: number ``which``, from 1, of ``of``. Which those are is in their digests."""

    which: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.which <= self.of:
            raise KeelError("bad-option", f"There is no shard {self}.", do="Shards of three are 1/3, 2/3 and 3/3.")

    def __str__(self) -> str:
        return f"{self.which}/{self.of}"

    @staticmethod
    def read(text: str) -> Shard:
        """Raises KeelError[bad-option]."""
        which, _, of = text.partition("/")
        if not (which.isdecimal() and of.isdecimal()):
            raise KeelError("bad-option", f"There is no shard {text!r}.", do="Shards of three are 1/3, 2/3 and 3/3.")
        return Shard(int(which), int(of))

    def of_plan(self, plan: Iterable[Case]) -> tuple[Case, ...]:
        return tuple(c for c in plan if int(c.digest[:16], 16) % self.of == self.which - 1)


@dataclass
class RunResult:
    """``verdicts`` in the plan's order, of all its cases unless the run was stopped. ``repeated`` is how many cases
    were begun more often than once, ``clock`` what the seconds were spent on (see ``overhead``).
    """

    verdicts: list[Verdict]
    seconds: float
    repeated: int = 0
    clock: dict[str, float] = field(default_factory=dict)

    @property
    def overhead(self) -> float | None:
        """CPU seconds a case that are neither the backend's, nor the oracles', nor spent on drawing arguments."""
        if not self.clock.get("cases"):
            return None
        parts = {
            "performing.backend": -1,
            "performing.drawing": -1,
            "performing.all": 1,
            "appraising.judging": -1,
            "appraising.drawing": -1,
            "appraising.all": 1,
        }
        own = sum(sign * self.clock.get(f"{part}.cpu", 0.0) for part, sign in parts.items())
        return (own + self.clock["supervising"]) / self.clock["cases"]


def digest(plan: Iterable[Case]) -> str:
    """The digest of the list of cases, which is the same wherever the same cases are run."""
    return hashlib.sha256("".join(c.digest for c in plan).encode()).hexdigest()


def head_of(plan: Sequence[Case], subject: str, shard: Shard, **about: Any) -> dict[str, Any]:
    """What a run is about, as its log says it first: only a run of the same goes on with it."""
    return {
        "backend": subject,
        "shard": str(shard),
        "cases": len(plan),
        "digest": digest(plan),
        "torch": torch.__version__,
        "torch-keel": version("torch-keel"),
        "python": platform.python_version(),
        **about,
    }


def run(
    plan: Sequence[Case],
    subject: str,
    *,
    out: Path,
    jobs: int = 1,
    shard: Shard = Shard(),
    resume: bool = False,
    settings: Settings | None = None,
    on_verdicts: OnVerdicts = lambda verdicts: None,
    stopped: Callable[[], bool] = lambda: False,
    cluster: Cluster | None = None,
    **about: Any,
) -> RunResult:
    """The verdicts on the cases of ``plan`` that are the shard's, on the backend that ``subject`` names.

    Each batch of verdicts is passed to ``on_verdicts`` and written to the log in the folder ``out``, from which
    ``resume`` continues. The processes are on this machine, or on those of a ``cluster``. The log begins with what the
    run is ``about``. Raises KeelError[bad-option] if the log is of another run.
    """
    begin, own = time.perf_counter(), time.process_time()
    cases = shard.of_plan(plan)
    if twice := [name for name, n in Counter(c.id for c in cases).items() if n > 1]:
        raise KeelError("bad-option", "Cases are planned twice.", {"twice": ", ".join(twice[:5])})
    journal = Journal.opened(out, head_of(plan, subject, shard, **about), resume=resume)
    earlier = dict(journal.verdicts)

    def known(batch: tuple[Case, ...]) -> list[Verdict] | None:
        results = [earlier[c.id] for c in batch if c.id in earlier]
        return results if len(results) == len(batch) else None

    def began(batch: tuple[Case, ...]) -> None:
        journal.begin([c.id for c in batch])

    def ended(batch: tuple[Case, ...], verdicts: list[Verdict]) -> None:
        journal.end(verdicts)
        on_verdicts(verdicts)

    on_verdicts(list(earlier.values()))
    folder = out / RESULTS
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir()
    scheduler = Scheduler(settings or Settings(subject), folder)
    try:
        if cluster is not None:
            how = settings or Settings(subject)
            scheduler.clock = run_on_cluster(cluster, how, queues(cases), earlier, began, ended, stopped)
        else:
            run_queues(
                (run_queue(scheduler, some, known, began, ended) for some in queues(cases)), jobs=jobs, stopped=stopped
            )
    finally:
        journal.close()
        shutil.rmtree(folder, ignore_errors=True)
    results = [journal.verdicts[c.id] for c in cases if c.id in journal.verdicts]
    ran = sum(v.case not in earlier and v.status != "not run" for v in results)
    clock = {**scheduler.clock, "supervising": time.process_time() - own, "cases": float(ran)}
    done = sum(v.status != "not run" for v in results)
    return RunResult(results, time.perf_counter() - begin, max(0, journal.started - done), clock)
