"""Which refusals of a plan matter to users, and which calls a backend takes and does not get, as data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass

from torch import fx

from keel.errors import KeelWarning, count
from keel.events import Event, GraphCompiled
from keel.graph.calls import call_of, source_line
from keel.placement.placement import Plan


@dataclass(frozen=True)
class RefusalReport:
    """One reason of one backend for refusing an operator, with the number of calls and the first lines of user code
    concerned, and the backend that takes them instead.
    """

    backend: str
    operator: str
    reason: str
    nearest: str | None
    calls: int
    where: tuple[str, ...]
    owner: str


def refusal_reports(gm: fx.GraphModule, plan: Plan) -> list[RefusalReport]:
    """The refusals of calls that no backend took which the user prefers to the one that refused, the most frequent
    first.
    """
    rank = {backend.name: i for i, backend in enumerate(plan.backends)}
    owners = plan.owner_of
    lines_by_key: dict[tuple[str, str, str, str | None, str], list[str | None]] = {}
    for node in gm.graph.nodes:
        if node.name not in owners or (call := call_of(node)) is None:
            continue
        owner = owners[node.name].name
        for backend, why in plan.refusals.get(node.name, {}).items():
            if rank[backend] < rank[owner]:
                key = (backend, call.name, why.sentence, why.nearest, owner)
                lines_by_key.setdefault(key, []).append(source_line(node))
    ordered = sorted(lines_by_key.items(), key=lambda item: (-len(item[1]), item[0][:2]))
    return [
        RefusalReport(*key[:4], len(lines), tuple(dict.fromkeys(line for line in lines if line))[:3], key[4])
        for key, lines in ordered
    ]


def passed_over(gm: fx.GraphModule, plan: Plan) -> dict[str, dict[str, int]]:
    """The calls that each backend takes, and that placement by cost gave to a backend that the user prefers less: their
    number for each operator, the most frequent first.
    """
    counts: dict[str, Counter[str]] = {}
    owners = plan.owner_of if plan.claim is not None else {}
    for node in gm.graph.nodes:
        if node.name in owners and (call := call_of(node)) is not None:
            for backend in plan.backends[: plan.backends.index(owners[node.name])]:
                if backend.name not in plan.refusals.get(node.name, {}):
                    counts.setdefault(backend.name, Counter())[call.name] += 1
    return {name: dict(by.most_common()) for name, by in counts.items()}


def warn_of_idle_backends(without_sheet: Set[str], event: Event) -> None:
    """A listener that warns of each backend ``without_sheet`` that takes calls of a graph and gets none of them."""
    if not isinstance(event, GraphCompiled):
        return
    busy = {part.owner.name for part in event.plan.parts}
    for name, counts in passed_over(event.gm, event.plan).items():
        if name in without_sheet - busy:
            warnings.warn(
                f"{name} gets none of the {count(sum(counts.values()), 'call')} that it takes of this {event.kind} "
                "graph. It has no data sheet and is assumed to be little faster than the last resort, so moving "
                'tensors between them would cost more than it saves. placement="order" gives it all that it takes, '
                f"keel bench --calibrate FILE --backend {name} measures a data sheet, and keel explain shows what to "
                "add next.",
                KeelWarning,
                stacklevel=2,
            )
