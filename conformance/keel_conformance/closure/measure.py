"""One OpInfo in a process of its own: traced, negotiated, typed, and run beside eager PyTorch."""
from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from time import process_time
from typing import Any

import torch

from keel import Call, closure, universe

from . import numbers
from .exceptions import UNDEFINED
from .jobs import Job, Row
from .pool import Tell
from .types import Verdicts

SHOWN = 3
"""How many sentences of a kind are kept for one OpInfo."""


def measure(job: Job, tell: Tell) -> Row:
    """What becomes of the job's samples; those that are traced alike are measured once."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return Measured(job, tell).row()


class Untraced(Exception):
    """PyTorch itself does not run or trace a sample: why."""


class Measured:
    """The measurement as it grows."""

    def __init__(self, job: Job, tell: Tell) -> None:
        self.job, self.tell, self.found = job, tell, Row()
        self.ends_in: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.types = Verdicts()
        self.training = job.mode == "training"

    def row(self) -> Row:
        self.tell("drawing samples")
        examples = self.drawn(0)
        self.found.samples = len(examples)
        done: set[str] = set()
        for i, example in enumerate(examples):
            if (key := kind_of(example)) not in done:
                done.add(key)
                self.one(i, example)
            else:
                self.found.traced += 1
        row, types = self.found, self.types
        row.ends_in, row.seconds = dict(self.ends_in), dict(self.seconds)
        row.typed, row.mistyped, row.untyped = types.typed, shown(types.wrong), sorted(types.untyped)
        row.wrong, row.inaccurate = shown(row.wrong), shown(row.inaccurate)
        return row

    @cache  # noqa: B019
    def drawn(self, seed: int) -> list[universe.Example]:
        return universe.examples(self.job.name, grad=self.training, most=self.job.samples, seed=seed)

    def one(self, i: int, example: universe.Example) -> None:
        ends: list[closure.Ending] = []
        with torch.set_grad_enabled(self.training):
            try:
                run = self.traced(example, ends)
            except Untraced as e:
                self.found.untraced.setdefault(str(e), example.title[:200])
                return
            self.found.traced += 1
            self.run(i, example, run, ends)
            for end in ends:
                self.tell(f"typing {example.title}")
                self.types.judge(end)
                self.ends_in.update({c.name for c in end.calls})
                self.found.outside |= {named(call): why for call, why in end.outside}

    def traced(self, example: universe.Example, ends: list[closure.Ending]) -> Callable[..., Any]:
        self.tell(f"running {example.title} in eager PyTorch")
        in_words(lambda: numbers.leave(example.fn, example.inputs))
        watch, self.negotiating = closure.watching(ends.append), 0.0

        def compiler(captured: Any) -> Any:
            self.tell(f"negotiating {example.title}")
            begin = process_time()
            try:
                return watch(captured)
            except Exception as e:
                self.found.wrong.append(f"{last_line(e)} ({example.title})")
                return closure.as_it_is(captured)
            finally:
                self.negotiating += process_time() - begin
                self.tell(f"tracing {example.title}")
        self.tell(f"tracing {example.title}")
        begin = process_time()
        run = in_words(lambda: universe.trace(example.fn, [numbers.twin(x) for x in example.inputs], compiler,
                                              dynamic=self.job.dynamic))
        self.seconds.update(tracing=process_time() - begin - self.negotiating, negotiating=self.negotiating)
        return run

    def run(self, i: int, example: universe.Example, run: Callable[..., Any], ends: list[closure.Ending]) -> None:
        self.tell(f"comparing {example.title}")
        try:
            if (reason := self.unjudged(ends)) is not None or not self.job.numbers:
                if self.training:                              # the backward graph may be traced only now
                    numbers.leave(run, example.inputs)
                if (reason := reason or self.unjudged(ends)) is not None:
                    self.found.unjudged[reason] = self.job.name
                return
            verdict = numbers.judged(lambda seed: self.alike(i, example, seed), run)
        except numbers.NoReference as e:
            self.found.unjudged[str(e)] = example.title[:200]
            return
        except Exception as e:
            self.found.wrong.append(f"What it ends in does not run: {last_line(e)} ({example.title})")
            return
        self.found.judged += 1
        self.found.worst = max(self.found.worst, verdict.worst)
        self.found.inaccurate += [f"{sentence} ({example.title})" for sentence in verdict.over]
        self.found.restrided += [f"{name} ({example.title})" for name in verdict.restrided][:SHOWN]

    def unjudged(self, ends: Iterable[closure.Ending]) -> str | None:
        random = sorted({c.name for end in ends for c in end.calls if torch.Tag.nondeterministic_seeded in tags(c)})
        if random:
            return f"It draws random numbers: {', '.join(random)}."
        return UNDEFINED.get(self.job.name)

    def alike(self, i: int, example: universe.Example, seed: int) -> universe.Example | None:
        """The sample with other values; None if they make it another sample."""
        if seed == 0:
            return example
        others = self.drawn(seed)
        return others[i] if i < len(others) and kind_of(others[i]) == kind_of(example) else None


def tags(call: Call) -> Any:
    return getattr(call.op, "tags", ())


def named(call: Call) -> str:
    return call.name


def kind_of(example: universe.Example) -> str:
    """What a trace of it depends on."""
    layouts = [(x.stride(), x.requires_grad) if x.layout == torch.strided else str(x.layout) for x in example.inputs]
    return f"{example.title} {layouts}"


def in_words(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except Exception as e:
        raise Untraced(last_line(e)) from e


def last_line(e: BaseException) -> str:
    """The kind of error and the first line of its message that says something."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    where = traceback.extract_tb(e.__traceback__)
    place = f" [{where[-1].filename.rpartition('site-packages/')[2]}:{where[-1].lineno}]" if where else ""
    return f"{type(e).__name__}: {lines[0] if lines else ''}"[:300] + place


def shown(sentences: list[str]) -> list[str]:
    more = len(sentences) - SHOWN
    return [*sentences[:SHOWN], f"and {more} more"] if more > 0 else sentences
