"""Chooses an owner for each call and makes a plan from that: by cost if costs are known, else by order of preference.
Clustering, certificate and part graphs are the same for both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from keel.errors import KeelError, KeelWarning
from keel.graph.calls import source_line
from keel.placement.ask_claims import ask_claims
from keel.placement.call_graph import CallGraph, call_graph_of
from keel.placement.cluster import cluster_in_one, delay_to_consumers
from keel.placement.placement import CostEstimate, Part, Plan, Refusals
from keel.placement.solve.problem import Problem
from keel.placement.solve.solver import SolvedPlacement, solve_placement
from keel.plugin import Backend, Refusal
from keel.refusals import CannotSay, prefers, refusal
from keel.types import Call

Price = Callable[[CallGraph, tuple[Backend, ...], NDArray[np.bool_]], Problem | None]
"""A function that states the cost of placing the units on the backends, which are in order of preference. ``taken[u,
b]`` says whether backend b takes unit u. Returns None if some cost is not known."""


def place(
    gm: fx.GraphModule,
    backends: Sequence[Backend],
    refusals: Refusals | None = None,
    *,
    strict: bool = False,
    price: Price | None = None,
) -> Plan:
    """Places every call of ``gm`` on the first of ``backends`` that takes it, in the fewest convex parts. With a
    ``price``, places calls so that the whole graph is cheapest (``keel.placement.solve.solver.solve_placement``).

    ``refusals`` are those already known; if a call has an entry, the first backend without a refusal in it takes the
    call. Backends of last resort come after all others. Raises KeelError[no-owner] if no backend takes a call, and
    KeelError[no-room] if no placement was found that fits into the memory that the data sheets give.
    """
    order = tuple(sorted(backends, key=lambda b: b.last_resort))
    units = call_graph_of(gm.graph)
    answers = _CachedAnswers(order, {name: dict(by) for name, by in (refusals or {}).items()}, strict)
    units, answers.vetoes = ask_claims(gm, units, order, lambda b, unit: answers.takes(b, units, unit))
    solved = None if price is None else by_cost(units, answers, price)
    if solved is not None:
        solution, problem = solved
        colors, groups = solution.backend.tolist(), list(solution.group)
        fused = {u for s in problem.savings if s.in_one_part for u in s.units}
    else:
        color = {b.name: i for i, b in enumerate(order)}
        colors = [color[b.name] for b in by_order(units, answers)]
        sets = _complete_fusions(units, order, colors)
        groups, _ = cluster_in_one(colors, units.needs, sets)
        fused = {u for units_of_one in sets for u in units_of_one}
    movable = [m and u not in fused for u, m in enumerate(_movable(units))]
    if (
        solved is None or not np.isfinite(problem.memory).any()
    ):  # with a memory limit, delayed calls might keep too much alive
        groups = delay_to_consumers(groups, colors, units.needs, movable)
    members: list[list[int]] = [[] for _ in range(max(groups, default=-1) + 1)]
    for unit, group in enumerate(groups):
        members[group].append(unit)
    parts = tuple(
        _part(i, order[colors[us[0]]], [units.nodes[u].name for u in us], units) for i, us in enumerate(members)
    )
    claim = None
    if solved is not None:  # delaying calls may have left fewer parts
        launches = float(problem.launch[[colors[us[0]] for us in members]].sum())
        claim = CostEstimate(solution.work + solution.moves + launches, solution.bound, solution.tick)
    return Plan(parts, order, answers.refusals, claim)


def _complete_fusions(units: CallGraph, backends: Sequence[Backend], colors: Sequence[int]) -> list[list[int]]:
    """The units of the fusions that have one owner, the backend that claims them."""
    sets = [(i, units.numbers_of(f.calls)) for i, b in enumerate(backends) for f in units.fusions.get(b.name, ())]
    return [members for i, members in sets if all(colors[u] == i for u in members)]


def _part(number: int, owner: Backend, nodes: Sequence[str], units: CallGraph) -> Part:
    """A part, with the fusions that its owner claims and has in it."""
    inside = {*nodes}
    fusions = tuple(f for f in units.fusions.get(owner.name, ()) if inside.issuperset(f.calls))
    return Part(f"p{number}", owner, tuple(nodes), fusions)


class _CachedAnswers:
    """The answers of the backends.  Each backend is asked once per distinct call."""

    def __init__(self, backends: tuple[Backend, ...], refusals: dict[str, dict[str, Refusal]], strict: bool) -> None:
        self.backends, self.refusals, self.strict = backends, refusals, strict
        self.answers: dict[tuple[str, Any], Refusal | None] = {}
        self.unreliable: set[str] = set()
        self.preferences: dict[tuple[str, Any], bool] = {}
        self.vetoes: Mapping[str, Mapping[str, Refusal]] = {}
        self.takers = {name: next((b.name for b in backends if b.name not in by), "") for name, by in refusals.items()}

    def takes(self, backend: Backend, units: CallGraph, unit: int) -> bool:
        node, call = units.nodes[unit], units.calls[unit]
        if (veto := self.vetoes.get(backend.name, {}).get(node.name)) is not None:
            self.refusals.setdefault(node.name, {})[backend.name] = veto
            return False
        if self.takers.get(node.name) == backend.name:
            return True
        by = self.refusals.setdefault(node.name, {})
        if backend.name not in by and (why := self.ask(backend, call)):
            by[backend.name] = why
        return backend.name not in by

    def ask(self, backend: Backend, call: Call) -> Refusal | None:
        key = (backend.name, call.key)
        if key not in self.answers:
            self.answers[key] = refusal(backend, call, strict=self.strict)
        return self.answers[key]

    def preferred(self, backend: Backend, call: Call) -> bool:
        """False if the backend would rather leave the call to others. One whose answer is invalid wants all calls."""
        if backend.prefers is None or backend.name in self.unreliable:
            return True
        key = (backend.name, call.key)
        if key not in self.preferences:
            try:
                self.preferences[key] = prefers(backend, call)
            except CannotSay as error:
                if self.strict:
                    raise
                warnings.warn(str(error), KeelWarning, stacklevel=2)
                self.unreliable.add(backend.name)
                return True
        return self.preferences[key]


def by_order(units: CallGraph, answers: _CachedAnswers) -> list[Backend]:
    """Returns the first backend that takes each call and prefers it, or else the first one that takes it.

    A view goes to the backend that makes its operand if that takes the view, or else to a backend that reads it.
    Neighbors that are a last resort come after the others.
    """
    owners = [_preferred(units, unit, answers) for unit in range(len(units.nodes))]
    unsettled: set[int] = set()
    for unit, call in enumerate(units.calls):
        if not is_view(call):
            continue
        made = units.maker(unit)
        if (
            made is not None
            and made not in unsettled
            and not owners[made].last_resort
            and answers.takes(owners[made], units, unit)
        ):
            owners[unit] = owners[made]
        else:
            unsettled.add(unit)
    readers = units.readers()
    for unit in sorted(unsettled, reverse=True):
        made = units.maker(unit)
        neighbors = [owners[u] for u in (*readers[unit], *(() if made is None else (made,)))]
        takers = [b for b in neighbors if answers.takes(b, units, unit)]
        owners[unit] = next((b for b in takers if not b.last_resort), next(iter(takers), owners[unit]))
    return owners


def by_cost(units: CallGraph, answers: _CachedAnswers, price: Price) -> tuple[SolvedPlacement, Problem] | None:
    """Returns the cheapest placement that is found, and the problem that it solves.  Returns None if there is no price.

    Every backend is asked about every distinct call.  It does not get a call that it refuses, whatever ``price`` says.
    """
    for unit in range(len(units.nodes)):
        _first(units, unit, answers)
    supported = np.array(
        [[answers.takes(b, units, unit) for b in answers.backends] for unit in range(len(units.nodes))], bool
    ).reshape(len(units.nodes), len(answers.backends))
    problem = price(units, answers.backends, supported)
    if problem is None:
        return None
    solution = solve_placement(replace(problem, compute=np.where(supported, problem.compute, np.inf)))
    if solution.over:
        short = ", ".join(f"{extra} bytes at {names}" for names, extra in _places(problem, answers.backends, solution))
        raise KeelError(
            "no-room",
            f"no placement of the graph was found that fits into memory: {short} are missing.",
            do="Raise `memory` in the data sheet, or add a backend on another device.",
        )
    return solution, problem


def _places(problem: Problem, backends: Sequence[Backend], solution: SolvedPlacement) -> list[tuple[str, int]]:
    """Returns the backends of each place that is too small, by name, and the number of bytes that are missing."""
    return [
        (" and ".join(b.name for b, p in zip(backends, problem.place.tolist(), strict=True) if p == place), extra)
        for place, extra in sorted(solution.over.items())
    ]


def is_view(call: Call) -> bool:
    """Whether the result shares its operand's memory, so that the call is free wherever the operand lives."""
    return bool(getattr(call.op, "is_view", False))


def _preferred(units: CallGraph, unit: int, answers: _CachedAnswers) -> Backend:
    """Returns the first backend that takes a call and prefers it. Where only a last resort does, the first one that
    takes it has it.
    """
    first = _first(units, unit, answers)
    if answers.preferred(first, units.calls[unit]):
        return first
    others = [b for b in answers.backends if b is not first and not b.last_resort]
    taking = (b for b in others if answers.takes(b, units, unit) and answers.preferred(b, units.calls[unit]))
    return next(taking, first)


def _first(units: CallGraph, unit: int, answers: _CachedAnswers) -> Backend:
    for backend in answers.backends:
        if answers.takes(backend, units, unit):
            return backend
    node = units.nodes[unit]
    raise no_owner(node, units.calls[unit], answers.refusals[node.name], answers.backends)


def no_owner(node: fx.Node, call: Call, why: Mapping[str, Refusal], backends: Sequence[Backend]) -> KeelError:
    """The error for a call that every backend refuses."""
    names = ", ".join(f'"{b.name}"' for b in backends)
    return KeelError(
        "no-owner",
        f"no backend takes %{node.name} = {call}",
        {who: str(sentence) for who, sentence in why.items()},
        where=source_line(node),
        do=f'Add a backend that takes it, for instance backends=[{names}, "eager"].',
    )


def _movable(units: CallGraph) -> list[bool]:
    """Returns which calls can be delayed to their readers without using more memory: calls that read only inputs of the
    graph or other such calls, and calls whose result is at least as large as the operands that a delay keeps alive.
    """
    movable: list[bool] = []
    for node, needs in zip(units.nodes, units.needs, strict=True):
        operand_bytes, result_bytes = sum(_bytes(units.nodes[u]) for u in needs), _bytes(node)
        movable.append(all(movable[u] for u in needs) or operand_bytes <= result_bytes < _UNKNOWN)
    return movable


_UNKNOWN = 1 << 62


def _bytes(node: fx.Node) -> int:
    """Returns the bytes of a call's result, or ``_UNKNOWN`` unless it is one tensor of known size."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(size := value.numel(), int):
        return _UNKNOWN
    return size * value.element_size()
