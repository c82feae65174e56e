"""What is kept of the graphs that one OpInfo or one model was traced into."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from keel import KeelError, closure
from keel_conformance.workers.pool import ReportPhase

from .jobs import Row
from .type_agreement import Verdicts

SHOWN = 3
"""How many sentences of a kind are kept."""


@dataclass
class Watch:
    """Legalizes each graph of one trace and tells of it; what goes wrong is put in words, and the graph runs as it is.

    ``doing`` is what legalization interrupts: PyTorch traces some graphs only when they are first run. ``seconds`` are
    the processor's.  ``left_out`` says what the graph holds that the operator set leaves out by decision.
    """

    tell: ReportPhase
    title: str
    wrong: list[str]
    ends: list[closure.Ending]
    seconds: float = 0.0
    doing: str = "starting"
    left_out: str | None = None

    def now(self, doing: str) -> None:
        self.doing = doing
        self.tell(f"{doing} {self.title}")

    def __call__(self, captured: Any) -> closure.Ending | None:
        self.tell(f"legalizing {self.title}")
        begin = process_time()
        try:
            end = closure.ending(captured)
        except Exception as e:
            if isinstance(e, KeelError) and e.code == "out-of-opset":
                self.left_out = _kind_of(e)
            else:
                self.wrong.append(f"{last_line(e)} ({self.title})")
            return None
        finally:
            self.seconds += process_time() - begin
            self.tell(f"{self.doing} {self.title}")
        self.ends.append(end)
        return end


@dataclass
class Endings:
    """What the graphs so far end in, and what their types are held to."""

    ends_in: Counter[str] = field(default_factory=Counter)
    outside: dict[str, str] = field(default_factory=dict)
    types: Verdicts = field(default_factory=Verdicts)
    foreign: set[str] = field(default_factory=set)

    def take(self, ends: Iterable[closure.Ending]) -> None:
        for end in ends:
            self.types.judge(end)
            self.ends_in.update({c.name for c in end.calls})
            self.foreign.update(end.foreign)
            self.outside |= {call.name: why for call, why in end.outside}

    def fill(self, row: Row) -> None:
        row.ends_in, row.outside, row.wrong = dict(self.ends_in), self.outside, shown(row.wrong)
        row.typed, row.mistyped, row.untyped = self.types.typed, shown(self.types.wrong), sorted(self.types.untyped)
        row.faults, row.foreign = sorted(self.types.faults), sorted(self.foreign)


def _kind_of(e: KeelError) -> str:
    """The refusal without the name of the node, which tells no kind of graph from another."""
    return e.what.partition(" is ")[2]


def sentence(e: BaseException) -> str:
    """The kind of error and the first line of its message that says something."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return f"{type(e).__name__}: {lines[0] if lines else ''}"[:300]


def last_line(e: BaseException) -> str:
    """The same, and the place that raised it."""
    where = traceback.extract_tb(e.__traceback__)
    place = f" [{where[-1].filename.rpartition('site-packages/')[2]}:{where[-1].lineno}]" if where else ""
    return sentence(e) + place


def shown(sentences: list[str]) -> list[str]:
    more = len(sentences) - SHOWN
    return [*sentences[:SHOWN], f"and {more} more"] if more > 0 else sentences
