"""One OpInfo in a process of its own: compiled by a backend, its calls counted by how they are done, run beside eager
PyTorch and float64.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from keel import KeelError, coverage, universe
from keel.opset import MEMBERS
from keel.testing import find
from keel_conformance.workers.pool import ReportPhase

from ..closure import accuracy_check
from ..closure.sample_cache import Draws, kind_of
from ..closure.tolerated import UNDEFINED
from ..closure.trace_watch import last_line, shown
from .jobs import TABLE, Job, Row


def work(job: Job, tell: ReportPhase) -> Any:
    """The cells of a family, or an OpInfo's row."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return cells(job, tell) if job.mode == TABLE else _Measured(job, tell).row()


def cells(job: Job, tell: ReportPhase) -> list[dict[str, Any]]:
    """One operator's cells, for one may end the process."""
    tell(f"asking about {job.name}")
    return [c.as_json() for c in coverage.cells(find(job.backend), [MEMBERS[job.name]])]


class _Measured:
    """The measurement as it grows."""

    def __init__(self, job: Job, tell: ReportPhase) -> None:
        self.job, self.tell, self.found = job, tell, Row()
        self.backend, self.training = find(job.backend), job.mode == "training"
        self.ways, self.externs, self.host = Counter[str](), Counter[str](), Counter[str]()
        self.draws = Draws(job.name, self.training, job.samples)

    def row(self) -> Row:
        self.tell("drawing samples")
        examples = self.draws.of(0)
        row = self.found
        row.samples = len(examples)
        visited: dict[str, tuple[bool, bool]] = {}
        for i, example in enumerate(examples):
            if (key := kind_of(example)) not in visited:
                visited[key] = self.one(i, example)
            traced, without_fallback = visited[key]
            row.traced += traced
            row.without_fallback += without_fallback
        row.ways, row.externs, row.host = dict(self.ways), dict(self.externs), dict(self.host)
        row.inaccurate, row.wrong = shown(row.inaccurate), shown(row.wrong)
        return row

    def one(self, i: int, example: universe.Example) -> tuple[bool, bool]:
        """Whether a sample is traced, and whether no call of it is left to eager PyTorch."""
        done: list[coverage.Done] = []
        with torch.set_grad_enabled(self.training):
            self.tell(f"running {example.title} in eager PyTorch")
            try:
                accuracy_check.leave(example.fn, example.inputs)
            except Exception as e:
                return self.untraced(e, example)
            self.tell(f"tracing {example.title}")
            compiler = coverage.compiling(self.backend, done.append, build=self.job.numbers)
            try:
                run = universe.trace(example.fn, [accuracy_check.twin(x) for x in example.inputs], compiler)
                self.tell(f"comparing {example.title}")
                self.run(i, example, run, done)
            except Exception as e:
                if not done and not _is_ours(e):
                    return self.untraced(e, example)
                if isinstance(e, KeelError) and e.code == "out-of-opset":
                    self.found.stranger[last_line(e)] = example.title[:200]
                    return True, False
                self.found.wrong.append(f"{last_line(e)} ({example.title[:200]})")
                return True, False
        return True, self.count(done)

    def untraced(self, e: Exception, example: universe.Example) -> tuple[bool, bool]:
        self.found.untraced.setdefault(last_line(e), example.title[:200])
        return False, False

    def count(self, done: Sequence[coverage.Done]) -> bool:
        """Takes in how the calls are done; whether the backend does all."""
        trouble = [t for d in done for t in d.trouble]
        self.found.wrong += trouble
        no_fallback = not trouble
        for call, way, why in (c for d in done for c in d.calls):
            if way == "refused" and coverage.is_beyond(call):
                self.host[call.name] += 1
                continue
            self.ways[way] += 1  # a view beside an eager call costs nothing
            if way == "refused":
                no_fallback = False
                self.found.left.setdefault(call.name, f"{why} ({call})"[:600])
            elif way == "extern":
                self.externs[call.name] += 1
        return no_fallback

    def run(self, i: int, example: universe.Example, run: Callable[..., Any], done: list[coverage.Done]) -> None:
        if self.training:  # the backward graph may be traced only now
            accuracy_check.leave(run, example.inputs)
        if (reason := self.unjudged(done)) is not None:
            self.found.unjudged[reason] = example.title[:200]
            if not self.training:
                accuracy_check.leave(run, example.inputs)
            return
        try:
            verdict = accuracy_check.judge_accuracy(partial(self.draws.alike, i), run)
        except accuracy_check.NoReference as e:
            self.found.unjudged[str(e)] = example.title[:200]
            return
        self.found.judged += 1
        self.found.worst = max(self.found.worst, verdict.worst)
        self.found.inaccurate += [f"{sentence} ({example.title[:200]})" for sentence in verdict.over]

    def unjudged(self, done: Sequence[coverage.Done]) -> str | None:
        if not self.job.numbers:
            return "It was not asked for."
        random = sorted(
            {
                c.name
                for d in done
                for c, *_ in d.calls
                if torch.Tag.nondeterministic_seeded in getattr(c.op, "tags", ())
            }
        )
        return f"It draws random numbers: {', '.join(random)}." if random else UNDEFINED.get(self.job.name)


def _is_ours(e: BaseException) -> bool:
    """Whether an error was raised below Keel's compiler, and not by PyTorch's tracing."""
    trace = e.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(("keel.compiler", "keel.coverage")):
            return True
        trace = trace.tb_next
    return False
