"""Asks backends what they claim of a whole graph, and checks the answers.

A claim is about calls that the backend takes. A wrong one is the plugin's fault: the graph is compiled without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from keel.errors import KeelError, first_line
from keel.interrupts import is_interrupt
from keel.placement.call_graph import CallGraph
from keel.placement.cluster import contracted
from keel.placement.faults import Fault
from keel.placement.part_graphs import copied_body
from keel.plugin import Backend, Fusion, Refusal, Veto
from keel.torch_adapter import lazy_module

RULE = (
    "This is a defect of the plugin: its `claim` returns Fusion and Veto values of calls among those that it gets, "
    "each of them once."
)


Claim = Callable[[fx.GraphModule, frozenset[fx.Node]], Iterable[Any]]


def ask_claims(
    gm: fx.GraphModule, units: CallGraph, backends: Sequence[Backend], takes: Callable[[Backend, int], bool]
) -> tuple[CallGraph, Mapping[str, Mapping[str, Refusal]]]:
    """Returns the units with the fusions that the ``backends`` claim, and why they leave calls to others, by backend
    and by the name of the node. ``takes`` says whether a backend takes a unit.

    Raises ``Fault`` for a backend whose ``claim`` raises, or claims what it does not take or what cannot be one kernel.
    """
    fusions: dict[str, tuple[Fusion, ...]] = {}
    vetoes: dict[str, dict[str, Refusal]] = {}
    for backend in backends:
        if backend.claim is not None:
            offered = {node.name for unit, node in enumerate(units.nodes) if takes(backend, unit)}
            answer = _answer(backend.name, backend.claim, gm, offered)
            _check(backend.name, answer, units, offered)
            fusions[backend.name] = tuple(each for each in answer if isinstance(each, Fusion))
            vetoes[backend.name] = {n: Refusal(v.why) for v in answer if isinstance(v, Veto) for n in v.calls}
    return replace(units, fusions=fusions), vetoes


def confirm_claim(name: str, claim: Claim, gm: fx.GraphModule, offered: Collection[str], before: Sequence[Any]) -> None:
    """Asks for a claim again. Raises ``Fault`` unless the answer is the same as ``before``."""
    if (again := _answer(name, claim, gm, offered)) == tuple(before):
        return
    less, more = (
        [str(each) for each in some if each not in other] for some, other in ((before, again), (again, before))
    )
    first = f"It claimed {less[0]}, and does not" if less else f"It did not claim {more[0]}, and does" if more else ""
    raise _fault(name, f"{first or 'It claims the same in another order'} when it is asked again about the same graph.")


def _answer(name: str, claim: Claim, gm: fx.GraphModule, offered: Collection[str]) -> tuple[Fusion | Veto, ...]:
    copy = _copied(gm)
    try:
        answer = tuple(claim(copy, frozenset(n for n in copy.graph.nodes if n.name in offered)))
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        raise _fault(name, first_line(raised)) from raised
    for each in answer:
        if not isinstance(each, Fusion | Veto):
            raise _fault(name, f"It returned a {type(each).__name__}, which is not a Fusion and not a Veto.")
    return answer


def _check(backend: str, answer: Sequence[Fusion | Veto], units: CallGraph, offered: set[str]) -> None:
    claimed: set[str] = set()
    for each in answer:
        for name in each.calls:
            if name not in offered:
                raise _fault(backend, f"It claims %{name}, which is not a call that {backend} takes.")
            if name in claimed:
                raise _fault(backend, f"It claims %{name} twice.")
            claimed.add(name)
    groups = [each for each in answer if isinstance(each, Fusion)]
    sets = [units.numbers_of(fusion.calls) for fusion in groups]
    if contracted(units.needs, sets) is None:
        first = next(i for i in range(len(sets)) if contracted(units.needs, sets[: i + 1]) is None)
        calls = ", ".join(f"%{name}" for name in groups[first].calls)
        raise _fault(
            backend,
            f"Its fusion {groups[first].name!r} ({calls}) cannot be one kernel: a call outside waits for a call in it, "
            "and another call in it waits for that.",
        )


def _fault(backend: str, why: str) -> Fault:
    return Fault(
        backend, KeelError("refuse-raised", f"{backend} made an invalid claim of a graph.", {backend: why}, do=RULE)
    )


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of the graph with the same names and types, which a plugin may change."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        copies[node] = made = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
        made.args = fx.map_arg(node.args, copies.__getitem__)
        made.kwargs = fx.map_arg(node.kwargs, copies.__getitem__)
        made.meta.update(node.meta)
    copy = lazy_module(gm, graph, "claimed")
    for name, body in gm.named_children():
        if hasattr(copy, name):
            setattr(copy, name, copied_body(body))
    return copy
