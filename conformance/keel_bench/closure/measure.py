"""One OpInfo in a process of its own: traced, legalized, typed, and run beside eager PyTorch."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from time import process_time
from typing import Any

import torch

from keel import Call, closure, universe
from keel_conformance.workers.pool import ReportPhase

from . import accuracy_check
from .jobs import Job, Row
from .sample_cache import Draws, kind_of
from .tolerated import UNDEFINED
from .trace_watch import SHOWN, Endings, Watch, last_line, shown


def measure(job: Job, tell: ReportPhase) -> Row:
    """What becomes of the job's samples; those that are traced alike are measured once."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return Measured(job, tell).row()


MOST = 1e9
"""What stands for an infinite error in files."""


class Untraced(Exception):
    """PyTorch itself does not run or trace a sample: why."""


class Measured:
    """The measurement as it grows."""

    def __init__(self, job: Job, tell: ReportPhase) -> None:
        self.job, self.tell, self.found = job, tell, Row()
        self.seconds = defaultdict[str, float](float)
        self.endings, self.training = Endings(), job.mode == "training"
        self.draws = Draws(job.name, self.training, job.samples)

    def row(self) -> Row:
        self.tell("drawing samples")
        examples = self.draws.of(0)
        self.found.samples = len(examples)
        outcomes: dict[str, bool | None] = {}
        for i, example in enumerate(examples):
            if (key := kind_of(example)) not in outcomes:
                outcomes[key] = self.one(i, example)
            self.found.traced += outcomes[key] is True
            self.found.refused += outcomes[key] is None
        row = self.found
        row.seconds = dict(self.seconds)
        self.endings.fill(row)
        row.inaccurate = shown(row.inaccurate)
        return row

    def one(self, i: int, example: universe.Example) -> bool | None:
        """Measures one sample; False if PyTorch does not trace it, None if what it holds is left out of the set."""
        watch = Watch(self.tell, example.title, self.found.wrong, [])
        with torch.set_grad_enabled(self.training):
            try:
                run = self.traced(example, watch)
            except Untraced as e:
                self.found.untraced.setdefault(str(e), example.title[:200])
                return False
            if watch.left_out is None:
                self.run(i, example, run, watch)
            if watch.left_out is not None:  # the backward graph may be traced only now
                self.found.left_out.setdefault(watch.left_out, example.title[:200])
                return None
            watch.now("typing")
            self.endings.take(watch.ends)
        return True

    def traced(self, example: universe.Example, watch: Watch) -> Callable[..., Any]:
        watch.now("running in eager PyTorch")
        in_words(lambda: accuracy_check.leave(example.fn, example.inputs))
        watch.now("tracing")
        begin = process_time()
        run: Callable[..., Any] = in_words(
            lambda: universe.trace(
                example.fn,
                [accuracy_check.twin(x) for x in example.inputs],
                closure.watching(watch),
                dynamic=self.job.dynamic,
            )
        )
        self.seconds["tracing"] += process_time() - begin - watch.seconds
        self.seconds["legalizing"] += watch.seconds
        return run

    def run(self, i: int, example: universe.Example, run: Callable[..., Any], watch: Watch) -> None:
        watch.now("comparing")
        try:
            if (reason := self.unjudged(watch.ends)) is not None or not self.job.numbers:
                if self.training:  # the backward graph may be traced only now
                    accuracy_check.leave(run, example.inputs)
                if (reason := reason or self.unjudged(watch.ends)) is not None:
                    self.found.unjudged[reason] = self.job.name
                return
            verdict = accuracy_check.judge_accuracy(partial(self.draws.alike, i), run)
        except accuracy_check.NoReference as e:
            self.found.unjudged[str(e)] = example.title[:200]
            return
        except Exception as e:
            self.found.wrong.append(f"What it ends in does not run: {last_line(e)} ({example.title})")
            return
        self.found.judged += 1
        self.found.worst = max(self.found.worst, min(verdict.worst, MOST))
        self.found.inaccurate += [f"{sentence} ({example.title})" for sentence in verdict.over]
        self.found.restrided += [f"{name} ({example.title})" for name in verdict.restrided][:SHOWN]

    def unjudged(self, ends: Iterable[closure.Ending]) -> str | None:
        random = sorted({c.name for end in ends for c in end.calls if torch.Tag.nondeterministic_seeded in tags(c)})
        if random:
            return f"It draws random numbers: {', '.join(random)}."
        return UNDEFINED.get(self.job.name)


def tags(call: Call) -> Any:
    return getattr(call.op, "tags", ())


def in_words(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except Exception as e:
        raise Untraced(last_line(e)) from e
