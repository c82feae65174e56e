"""Reports about compiled graphs, as data: their parts, the refusals of backends, and the plans that were timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from keel.cost.assumed import GAIN
from keel.refusal_reports import RefusalReport
from keel.runtime.autotune import PlanTiming
from keel.what_if import Step


@dataclass(frozen=True)
class PartReport:
    """One part: the number of calls of each operator, the backend that claimed it, the backend that compiled it, and
    the parts that it reads from. If all backends have data sheets, also the predicted seconds of its calls, of its
    transfers from and to other parts, and of its launch. ``module`` is the path of the user's module that contains all
    calls, ``modules`` are the numbers of calls of each operator by the path of the innermost module, and ``bytes_read``
    are the bytes of the tensors that it reads, by the part that makes them; the key of the graph's inputs is empty.
    ``fusions`` are the numbers of the kernels that its backend claimed in it, by their names.
    """

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
    module: str = ""
    modules: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)
    fusions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphReport:
    """One compiled graph. ``kind`` is inference, forward or backward. ``bound`` is a lower bound of the seconds of any
    placement, if it was placed by cost. ``steps`` are operators that backends could take in addition. ``tried`` are the
    plans that were timed; ``untried`` says why no plan was timed although that was asked for. ``assumed`` are the
    backends whose data sheets are assumed, since they have none. ``passed_over`` are the numbers of calls of each
    operator that a backend takes, and that placement by cost gave to a backend that the user prefers less.
    """

    kind: str
    parts: tuple[PartReport, ...]
    refused: tuple[RefusalReport, ...]
    bound: float | None = None
    steps: tuple[Step, ...] = ()
    tried: tuple[PlanTiming, ...] = ()
    untried: str = ""
    assumed: tuple[str, ...] = ()
    passed_over: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return sum(p.calls for p in self.parts)

    @property
    def seconds(self) -> float | None:
        """The predicted seconds of the whole graph, by the data sheets."""
        known = [
            p.work + p.moves + p.launch
            for p in self.parts
            if p.work is not None and p.moves is not None and p.launch is not None
        ]
        return sum(known) if len(known) == len(self.parts) else None


def short(operator: str) -> str:
    """The name of an operator as users write it: ``relu`` for ``aten.relu.default``."""
    return operator.removeprefix("aten.").removesuffix(".default")


def assumption(backend: str) -> str:
    """The sentences about a backend whose data sheet is assumed."""
    return (
        f"{backend} has no data sheet. It is assumed to be {GAIN:g} times as fast as the last resort, and a tensor "
        'that changes its backend to pass through memory once more. placement="order" gives it all that it takes.'
    )


def listed(counts: Mapping[str, int]) -> str:
    """Operators with the numbers of their calls: ``relu (2), mm (1)``."""
    return ", ".join(f"{short(operator)} ({n})" for operator, n in counts.items())


def size(count: int) -> str:
    """``12.3 KiB``."""
    scale, unit = next(((s, u) for s, u in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")) if count >= s), (1, "B"))
    return f"{count / scale:.3g} {unit}"


def duration(seconds: float | None) -> str:
    """``12.3 us``."""
    if seconds is None:
        return ""
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= s), (1e-6, "us"))
    return f"{seconds / scale:.3g} {unit}"
