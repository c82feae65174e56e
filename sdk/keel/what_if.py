"""Hypothetical placements: without a backend or an operator, or with an operator that a backend does not take yet.

A hypothetical backend answers, is priced by its data sheet and is placed like any other, and its parts run in eager
PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from keel.cost import price as price_of
from keel.errors import KeelError
from keel.graph.calls import call_of
from keel.graph.leaf_calls import leaf_calls
from keel.graph.size_hints import typical_sizes
from keel.pins import is_of
from keel.placement.audit.itemized_cost import itemize
from keel.placement.faults import Fault
from keel.placement.place import Price, place
from keel.placement.placement import Plan
from keel.plugin import Backend, Refusal
from keel.refusals import CannotSay, answer
from keel.types import Call

MOST = 24
"""The number of operators that are tried on backends that do not take them, those with the most calls first."""


@dataclass(frozen=True)
class Step:
    """An operator that a backend could take. ``calls`` is the number of its calls that the backend refuses, which take
    ``seconds`` where they are now. With them, the backend would have ``then`` calls of the graph, and ``saved`` seconds
    would be saved. Seconds are by the data sheets, None if a backend has none.
    """

    backend: str
    operator: str
    calls: int
    saved: float | None
    seconds: float | None = None
    then: int = 0


def suppose(
    backends: Sequence[Backend], without: Sequence[str] = (), assume: Sequence[str] = ()
) -> tuple[Backend, ...]:
    """The backends with hypothetical changes. ``without`` removes backends, or operators: on every backend but those of
    last resort (``softmax``, ``aten.mm.default``), or on one backend (``acme.softmax``). ``assume`` makes a backend
    take an operator (``acme.softmax``). Raises KeelError[bad-option] if ``assume`` names an unknown backend.
    """
    if not without and not assume:
        return tuple(backends)
    names = [b.name for b in backends]
    result = []
    for b in backends:
        if b.name in without:
            continue
        lost = [w for w in without if w not in names and not b.last_resort and w.partition(".")[0] not in names]
        lost += [op for w in without if (op := _of(w, b.name)) is not None]
        result.append(_supposed(b, lost, [op for a in assume if (op := _of(a, b.name)) is not None]))
    if nobody := [a for a in assume if a.partition(".")[0] not in {b.name for b in result} or "." not in a]:
        raise KeelError(
            "bad-option",
            f"Unknown backend in {nobody[0]!r}.",
            {"backends": ", ".join(names)},
            do="Write BACKEND.OPERATOR, for instance acme.softmax.",
        )
    return tuple(result)


def next_steps(gm: fx.GraphModule, plan: Plan, price: Price | None, constants: Iterable[str] = ()) -> tuple[Step, ...]:
    """The operators that each backend refuses and could take, sorted by the seconds saved, by the seconds that their
    calls take now, and by calls. Each operator is tried by itself: the graph is placed again, by cost if it was so
    before, as if the backend took every call of the operator.
    """
    price = price if plan.claim is not None else None
    fixed = frozenset(constants)
    before, nodes = _total(gm, plan, fixed), {n.name: n for n in gm.graph.nodes}
    sizes = typical_sizes(gm.graph)
    last = {b.name for b in plan.backends if b.last_resort}
    refused = Counter(
        (who, str(nodes[name].target))
        for name, by in plan.refusals.items()
        if name in nodes
        for who in by
        if who not in last
    )
    steps = []
    for (who, operator), _ in sorted(refused.items(), key=lambda item: (-item[1], item[0]))[:MOST]:
        backends = tuple(_supposed(b, (), (operator,)) if b.name == who else b for b in plan.backends)
        refusals, gained = _asked_again(plan, nodes, backends, who, operator)
        if gained:
            try:
                after = place(gm, backends, refusals, price=price)
                now, seconds = _total(gm, after, fixed), _seconds(gained, plan, sizes)
            except Fault:  # the data sheet fails for a call that it has not priced before
                steps.append(Step(who, operator, len(gained), None))
                continue
            saved = None if before is None or now is None else before - now
            then = sum(len(part.nodes) for part in after.parts if part.owner.name == who)
            steps.append(Step(who, operator, len(gained), saved, seconds, then))
    return tuple(sorted(steps, key=_worth))


def _worth(step: Step) -> tuple[float, float, int, str, str]:
    """The key by which steps are sorted. A difference of a nanosecond is rounding."""
    return -round(step.saved or 0.0, 9), -(step.seconds or 0.0), -step.calls, step.backend, step.operator


def _seconds(calls: Sequence[fx.Node], plan: Plan, sizes: Mapping[str, int]) -> float | None:
    """The seconds of calls on the backends that have them, without what passes between backends and loops."""
    total, owners = 0.0, plan.owner_of
    for node in calls:
        sheet, call = owners[node.name].cost, call_of(node)
        if sheet is None or call is None:
            return None
        total += price_of(call, sheet, sizes, leaf_calls(call, sizes)).alone
    return total


def merged(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Merges the steps of several graphs: one step for each operator of a backend, with the sum of its savings."""
    sums: dict[tuple[str, str], Step] = {}
    for s in steps:
        had = sums.get((s.backend, s.operator))
        sums[s.backend, s.operator] = s if had is None else _sum(had, s)
    return tuple(sorted(sums.values(), key=_worth))


def _sum(one: Step, other: Step) -> Step:
    saved, seconds = (
        None if a is None or b is None else a + b for a, b in ((one.saved, other.saved), (one.seconds, other.seconds))
    )
    return replace(one, calls=one.calls + other.calls, saved=saved, seconds=seconds, then=one.then + other.then)


def _asked_again(
    plan: Plan, nodes: Mapping[str, fx.Node], backends: Sequence[Backend], who: str, operator: str
) -> tuple[dict[str, dict[str, Refusal]], list[fx.Node]]:
    """The refusals after one backend has been asked again about one operator, and the calls that it takes now."""
    backend = next(b for b in backends if b.name == who)
    refusals, gained = {name: dict(by) for name, by in plan.refusals.items()}, list[fx.Node]()
    for name, by in refusals.items():
        if who in by and str(nodes[name].target) == operator and (call := call_of(nodes[name])) is not None:
            try:
                why = answer(backend, call)
            except CannotSay as raised:  # a warning was given when the graph was placed
                why = raised.refusal
            if why is None:
                del by[who]
                gained.append(nodes[name])
            else:
                by[who] = why
    return refusals, gained


def _total(gm: fx.GraphModule, plan: Plan, constants: frozenset[str]) -> float | None:
    bills = itemize(gm, plan, constants)
    return None if bills is None else sum(b.seconds for b in bills)


def _supposed(backend: Backend, lost: Sequence[str], gained: Sequence[str]) -> Backend:
    def supports(call: Call) -> Refusal | str | None:
        if any(is_of(call, op) for op in gained):
            return None
        if any(is_of(call, op) for op in lost):
            return f"{backend.name} is supposed not to take {call.name}."
        return answer(backend, call)

    return replace(backend, supports=supports, compile=lambda gm: gm.forward, target=None)


def _of(what: str, name: str) -> str | None:
    """The operator ``softmax`` in ``acme.softmax`` if ``acme`` is the name, else None."""
    head, dot, operator = what.partition(".")
    return operator if dot and head == name else None
