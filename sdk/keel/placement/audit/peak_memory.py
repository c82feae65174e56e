"""Computes the bytes that a plan keeps alive at once on each device, from the graph and the parts alone.

It shares no code with ``solve``, whose ``memory_budget`` computes the same for a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import fx

from keel.cost import Cost
from keel.cost.work import size_of
from keel.graph.calls import call_of, type_of
from keel.graph.size_hints import typical_sizes
from keel.placement.placement import Plan
from keel.types import TensorType

HOME = None
"""The place of backends without a memory of their own: where the graph's tensors are."""


@dataclass(frozen=True)
class DeviceUsage:
    """A device, by the names of its backends: the most bytes that are alive on it at once, and the bytes that it
    has.
    """

    backends: tuple[str, ...]
    used: int
    budget: float


def peak_usage(gm: fx.GraphModule, plan: Plan) -> tuple[DeviceUsage, ...]:
    """The devices whose data sheets give a budget.

    Calls run part by part, and in a part in the order of the graph. On its maker's place a tensor, even a view, is
    alive until all its readers have run; on another place it is alive from the first to the last reader there. Inputs
    of the graph are alive from the start, and its results at home to the end. Sizes have the values that they had while
    tracing.
    """
    sheets = {b.name: b.cost for b in plan.backends if b.cost is not None}
    places: dict[str | None, list[str]] = {}
    for backend in plan.backends:
        places.setdefault(_place(backend.name, sheets), []).append(backend.name)
    budgets = {
        place: min((sheets[n].memory for n in names if n in sheets), default=float("inf"))
        for place, names in places.items()
    }
    budgets = {place: budget for place, budget in budgets.items() if budget != float("inf")}
    if not budgets:
        return ()
    used = _peaks(gm, plan, sheets)
    return tuple(DeviceUsage(tuple(places[place]), used.get(place, 0), budget) for place, budget in budgets.items())


def _place(backend: str, sheets: Mapping[str, Cost]) -> str | None:
    return backend if backend in sheets and sheets[backend].link is not None else HOME


def _peaks(gm: fx.GraphModule, plan: Plan, sheets: Mapping[str, Cost]) -> dict[str | None, int]:
    where = {name: _place(part.owner.name, sheets) for part in plan.parts for name in part.nodes}
    turn = {name: i for i, name in enumerate(name for part in plan.parts for name in part.nodes)}
    sizes = typical_sizes(gm.graph)
    changes: dict[str | None, Counter[int]] = {}
    for node, maker in _made(gm, turn):
        kind = type_of(node.meta["val"])
        assert isinstance(kind, TensorType)
        size = int(size_of(kind, sizes))
        for place, (first, last) in _spans(node, maker, where, turn).items():
            deltas = changes.setdefault(place, Counter())
            deltas[first] += size
            deltas[last + 1] -= size
    return {place: max(accumulate(by[t] for t in sorted(by)), default=0) for place, by in changes.items()}


def _made(gm: fx.GraphModule, turn: Mapping[str, int]) -> Iterator[tuple[fx.Node, str | None]]:
    """Yields each tensor with the call that makes it, or None if it is an input of the graph."""
    for node in gm.graph.nodes:
        if not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if node.op == "placeholder":
            yield node, None
        elif node.name in turn and (call := call_of(node)) is not None and len(call.out) == 1:
            yield node, node.name
        elif node.op == "call_function" and node.name not in turn and node.all_input_nodes[0].name in turn:
            yield node, node.all_input_nodes[0].name  # one result of several


def _spans(
    node: fx.Node, maker: str | None, where: Mapping[str, str | None], turn: Mapping[str, int]
) -> dict[str | None, tuple[int, int]]:
    """Returns the first and the last call for which a tensor is alive, on each place."""
    begin, home = (0, HOME) if maker is None else (turn[maker], where[maker])
    results: dict[str | None, tuple[int, int]] = {}
    for user in node.users:
        if user.name in turn:
            first, last = results.get(where[user.name], (turn[user.name],) * 2)
            results[where[user.name]] = min(first, turn[user.name]), max(last, turn[user.name])
    done = max((last for _, last in results.values()), default=begin)
    results[home] = begin, max(done, begin)
    if any(user.op == "output" for user in node.users):
        first = min(results.get(HOME, (done, 0))[0], max(done, begin))
        results[HOME] = first, len(turn) - 1
    return results
