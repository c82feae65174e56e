"""One run of a command that measures: progress, rows kept as they arrive, an end that an interruption cannot take."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import report
from ..report import Criterion
from .pool import Outcome, Start, run_all
from .result_log import ResultLog

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Describe = Callable[[Any, Outcome], str]
"""What is worth a line as soon as a job has ended; '' for nothing."""


@dataclass
class Interruption:
    """The signal that asked for an end, once one has."""

    by: signal.Signals | None = None


@dataclass
class Run:
    """``stopped`` is the signal that ended the measuring; ``earlier`` has what the run that this one resumes saw."""

    console: Console
    file: Path | None
    log: ResultLog | None
    earlier: Mapping[Any, Outcome]
    begin: float = field(default_factory=time.monotonic)
    interruption: Interruption = field(default_factory=Interruption)
    requested: int = 0
    completed: int = 0

    @property
    def stopped(self) -> signal.Signals | None:
        return self.interruption.by

    def measure(
        self,
        title: str,
        jobs: Sequence[Any],
        start: Start,
        describe: Describe,
        *,
        at_once: int = 1,
        time_limit: float,
        last_lines: int = 3,
    ) -> dict[Any, Outcome]:
        """The outcomes of those jobs that ended, in the jobs' order: all, unless the run was stopped."""
        results = {job: self.earlier[job] for job in jobs if job in self.earlier}
        todo = [job for job in jobs if job not in results]
        if todo:
            with (
                closing(
                    run_all(
                        todo,
                        start,
                        at_once=at_once,
                        time_limit=time_limit,
                        last_lines=last_lines,
                        stopped=lambda: self.stopped is not None,
                    )
                ) as ends,
                progress_on(self.console) as progress,
            ):
                task = progress.add_task(title, total=len(todo))
                for job, outcome in ends:
                    results[job] = outcome
                    if self.log is not None:
                        self.log.append(job, outcome)
                    if text := describe(job, outcome):
                        progress.console.print(text, markup=False, highlight=False)
                    progress.advance(task)
        self.requested += len(jobs)
        self.completed += len(results)
        return {job: results[job] for job in jobs if job in results}

    def finish(self, bars: Sequence[Criterion], **more: Any) -> None:
        """Shows the bars, and writes them to the file with what ``more`` there is. Raises typer.Exit if one falls short
        or the run was stopped, which is a bar that falls short.
        """
        if self.stopped is not None:
            bars = [
                *bars,
                Criterion(
                    "jobs ended",
                    f"{self.completed} of {self.requested}",
                    "all",
                    False,
                    f"stopped by {self.stopped.name}" + ("; --resume goes on" if self.log else ""),
                ),
            ]
        report.show(self.console, bars)
        if self.file is not None:
            report.write(self.file, bars, time.monotonic() - self.begin, **more)
        if self.stopped is not None:
            raise typer.Exit(128 + self.stopped)
        if any(bar.holds is False for bar in bars):
            raise typer.Exit(1)


def progress_on(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


@dataclass
class PlainProgress:
    """Progress as lines, for an output that is not a terminal: at the first count, then each ``every`` seconds."""

    console: Console
    title: str
    total: int
    every: float = 30.0
    now: Callable[[], float] = time.monotonic
    done: int = 0
    bad: int = 0

    def __post_init__(self) -> None:
        self.begin = self.now()
        self.due = self.begin + self.every

    def advance(self, count: int, bad: int = 0) -> None:
        """Counts what has ended, ``bad`` of it with a bad end."""
        self.done, self.bad = self.done + count, self.bad + bad
        if self.now() >= self.due:
            self.due = self.now() + self.every
            share = f"{self.done:,} of {self.total:,}, {report.percent(self.done, self.total)}"
            text = f"{self.title}: {share}, {self.bad:,} bad, after {self.now() - self.begin:.0f} s"
            self.console.print(text, highlight=False, markup=False)


@contextmanager
def running(
    file: Path | None,
    job: Callable[..., Any],
    row: Callable[[Any, Any], Any],
    *,
    resume: bool = False,
    retry: bool = False,
) -> Iterator[Run]:
    """A run whose bars go to ``file`` and whose rows go to the log beside it (see Log for ``job`` and ``row``).

    With ``resume`` the jobs in that log are not measured again; with ``retry`` those are that did not end with a row.
    Within it, the first SIGINT or SIGTERM ends the measuring and not the command; a second one ends that too.
    """
    if (resume or retry) and file is None:
        raise typer.BadParameter("--resume goes on with the run of a file: which one, --json says.")
    log = ResultLog.for_file(file, job, row) if file is not None else None
    earlier: dict[Any, Outcome] = {}
    if log is not None and not (resume or retry):
        log.begin()
    elif log is not None:
        earlier = {j: o for j, o in log.resume().items() if not (retry and o.row is None)}
    with interruptible() as interruption:
        yield Run(Console(width=None if os.isatty(1) else 200), file, log, earlier, interruption=interruption)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within it, the first SIGINT or SIGTERM is recorded; a second one has its usual effect."""
    interruption = Interruption()
    before = {s: signal.getsignal(s) for s in SIGNALS}

    def restore() -> None:
        for s, handler in before.items():
            signal.signal(s, handler)

    def stop(number: int, frame: Any) -> None:
        interruption.by = signal.Signals(number)
        restore()

    for s in SIGNALS:
        signal.signal(s, stop)
    try:
        yield interruption
    finally:
        restore()
