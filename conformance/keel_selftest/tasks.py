"""Many backends tried on cases of their own, all by the same processes, each with a log from which it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from keel_conformance.cases.case import Case
from keel_conformance.harness.executor import run_queues
from keel_conformance.harness.journal import Journal
from keel_conformance.harness.protocol import Settings
from keel_conformance.harness.run import Shard, head_of
from keel_conformance.harness.scheduler import Scheduler, Steps, queues, run_queue
from keel_conformance.results.verdict import Verdict

Verdicts = Mapping[str, Verdict]
"""By case."""
AT_ONCE = 400
"""Logs that are open at a time."""


@dataclass(frozen=True)
class Task:
    """``subject`` is tried on ``cases``; ``name`` is that of its folder. With ``once`` a failure is believed at once:
    where failing is what is expected, trying again says nothing more.
    """

    name: str
    subject: str
    cases: tuple[Case, ...]
    once: bool = False


def run_tasks(
    tasks: Sequence[Task],
    *,
    out: Path,
    jobs: int = 1,
    resume: bool = False,
    limit: float = Settings.limit,
    report_count: Callable[[int], None] = lambda count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Verdicts]:
    """Returns the verdicts of each task. ``report_count`` is called with the number of cases that ended since its last
    call. Raises KeelError[bad-option] if ``resume`` finds a run of other cases.
    """
    results: dict[str, Verdicts] = {}
    for k in range(0, len(tasks), AT_ONCE):
        with ExitStack() as stack:
            runs = [_Run(task, out, resume, limit, report_count) for task in tasks[k : k + AT_ONCE]]
            for run in runs:
                stack.callback(run.close)
            run_queues((steps for run in runs for steps in run.steps()), jobs=jobs, stopped=stopped)
            results |= {run.task.name: dict(run.journal.verdicts) for run in runs}
        if stopped():
            break
    return results


class _Run:
    """One task under way."""

    def __init__(self, task: Task, out: Path, resume: bool, limit: float, report_count: Callable[[int], None]):
        self.task, self.report_count = task, report_count
        self.journal = Journal.opened(out / task.name, head_of(task.cases, task.subject, Shard()), resume=resume)
        self.earlier = dict(self.journal.verdicts)
        self.results = out / task.name / "results"
        shutil.rmtree(self.results, ignore_errors=True)  # of a run that was killed
        self.results.mkdir()
        self.scheduler = Scheduler(Settings(task.subject, limit=limit), self.results, once=task.once)
        report_count(len(self.earlier))

    def steps(self) -> Iterator[Steps[None]]:
        return (
            run_queue(self.scheduler, some, self._known, self._began, self._ended) for some in queues(self.task.cases)
        )

    def close(self) -> None:
        self.journal.close()
        shutil.rmtree(self.results, ignore_errors=True)

    def _known(self, batch: tuple[Case, ...]) -> list[Verdict] | None:
        results = [self.earlier[c.id] for c in batch if c.id in self.earlier]
        return results if len(results) == len(batch) else None

    def _began(self, batch: tuple[Case, ...]) -> None:
        self.journal.begin([c.id for c in batch])

    def _ended(self, batch: tuple[Case, ...], verdicts: list[Verdict]) -> None:
        self.journal.end(verdicts)
        self.report_count(len(verdicts))
