"""Reports about compiled graphs, as data: their parts, the refusals of backends, and the plans that were timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keel.runtime.autotune import PlanTiming
from keel.what_if import Step


@dataclass(frozen=True)
class PartReport:
    """One part: how many calls of which operators, who claimed them, and who compiled them in the end; the parts that
    it reads from; and by the data sheets, if all backends have some, the seconds of its calls, of what it takes from
    and gives to others, and to enter it."""

    name: str
    owner: str
    claimed_by: str
    calls: int
    operators: Mapping[str, int]
    trouble: tuple[str, ...]
    reads: tuple[str, ...] = ()
    work: float | None = None
    moves: float | None = None
    launch: float | None = None


@dataclass(frozen=True)
class RefusalReport:
    """One reason of one backend for not taking an operator: how often, and the first lines of user code it hit."""

    backend: str
    operator: str
    reason: str
    nearest: str | None
    calls: int
    where: tuple[str, ...]
    owner: str


@dataclass(frozen=True)
class GraphReport:
    """One compiled graph: ``kind`` is inference, forward or backward.  ``bound`` are seconds that no placement of it
    undercuts, if it was placed by cost; ``steps`` are what could be taken besides; ``tried`` are the plans that ran
    against each other, ``untried`` says why none did where that was asked for."""

    kind: str
    parts: tuple[PartReport, ...]
    refused: tuple[RefusalReport, ...]
    bound: float | None = None
    steps: tuple[Step, ...] = ()
    tried: tuple[PlanTiming, ...] = ()
    untried: str = ""

    @property
    def calls(self) -> int:
        return sum(p.calls for p in self.parts)

    @property
    def seconds(self) -> float | None:
        """By the data sheets."""
        known = [
            p.work + p.moves + p.launch
            for p in self.parts
            if p.work is not None and p.moves is not None and p.launch is not None
        ]
        return sum(known) if len(known) == len(self.parts) else None


def duration(seconds: float | None) -> str:
    """``12.3 us``."""
    if seconds is None:
        return ""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= s), (1e-6, "us"))
    return f"{seconds / scale:.3g} {unit}"
