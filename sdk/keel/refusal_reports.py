"""Which refusals of a plan matter to users, and which calls a backend takes and does not get, as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import fx

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
