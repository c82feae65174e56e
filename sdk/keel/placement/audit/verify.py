"""Checks a placement independently: it runs for every graph and shares no code with the code that made the plan.

Each part must need only earlier parts. That proves three things at once: the quotient graph is acyclic, every part is
convex, and the listed order is a launch order.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import call_of
from keel.graph.calls import source_line as line_of
from keel.placement.audit.itemized_cost import itemize
from keel.placement.audit.peak_memory import peak_usage
from keel.placement.placement import Plan
from keel.plugin import Refusal
from keel.refusals import CannotSay, answer
from keel.types import Call


@dataclass(eq=False)
class Refused(KeelError):
    """KeelError[bad-plan]: the ``owner`` of a ``call`` refuses it, and ``why``; ``line`` is the user's."""

    owner: str = ""
    call: Call | None = None
    why: Refusal | None = None
    line: str | None = None


def verify_placement(gm: fx.GraphModule, plan: Plan, constants: Collection[str] = ()) -> None:
    """Raises KeelError[bad-plan] unless the plan holds.

    Every call of ``gm`` is in exactly one part, and its owner takes it. Every value is computed in the part that reads
    it or in an earlier one. Effects keep their order, and no call that stands behind an assertion runs before it. A
    placement by cost costs what it claims, and keeps no more alive on a device than fits there.

    ``constants`` are the names of inputs that never change.  Time linear in the graph, with one question to the owner
    per distinct call.
    """
    where = _part_of(gm, plan)
    _owners(gm, plan, where)
    _order(gm, plan, where)
    _cost(gm, plan, constants)
    _memory(gm, plan)


def _order(gm: fx.GraphModule, plan: Plan, where: dict[str, int]) -> None:
    available: dict[fx.Node, int] = {}  # the part in which a value is made, or before which it exists
    effect = assertion = 0  # the parts of the last ones so far
    for node in gm.graph.nodes:
        needed = max((available[a] for a in node.all_input_nodes), default=0)
        if node.name in where:
            own = where[node.name]
            if needed > own:
                late = next(a for a in node.all_input_nodes if available[a] > own)
                _fail(
                    f"%{node.name} in {plan.parts[own].name} needs %{late.name}, "
                    f"which {plan.parts[needed].name} computes later"
                )
            if assertion > own:
                _fail(
                    f"%{node.name} in {plan.parts[own].name} stands behind an assertion and would run before "
                    f"it: the assertion is in {plan.parts[assertion].name}"
                )
            if _asserts(gm, node):
                assertion = own
            if _ordered(node):
                if effect > own:
                    _fail(
                        f"%{node.name} in {plan.parts[own].name} has an effect and would run before an earlier one "
                        f"in {plan.parts[effect].name}"
                    )
                effect = own
            needed = own
        available[node] = needed


def _part_of(gm: fx.GraphModule, plan: Plan) -> dict[str, int]:
    """The part of each call; fails unless the parts hold exactly the calls of the graph, each once, in graph order."""
    order = {node.name: i for i, node in enumerate(gm.graph.nodes)}
    where: dict[str, int] = {}
    for i, part in enumerate(plan.parts):
        if not part.nodes:
            _fail(f"{part.name} is empty")
        for name in part.nodes:
            if name not in order:
                _fail(f"{part.name} holds %{name}, which the graph does not have")
            if name in where:
                _fail(f"%{name} is in {plan.parts[where[name]].name} and in {part.name}")
            where[name] = i
        for fusion in part.fusions:
            if not {*part.nodes}.issuperset(fusion.calls):
                _fail(f"{part.name} does not have all calls of its fusion {fusion.name!r}")
        if list(part.nodes) != sorted(part.nodes, key=order.__getitem__):
            _fail(f"the nodes of {part.name} are not in graph order")
    for node in gm.graph.nodes:
        if _works(node) and node.name not in where:
            _fail(f"%{node.name} is in no part")
        if node.name in where and not _works(node):
            _fail(f"%{node.name} is not a call, but {plan.parts[where[node.name]].name} holds it")
    return where


def _owners(gm: fx.GraphModule, plan: Plan, where: dict[str, int]) -> None:
    checked: set[tuple[str, object]] = set()
    for node in gm.graph.nodes:
        if node.name not in where:
            continue
        owner, call = plan.parts[where[node.name]].owner, call_of(node)
        if owner not in plan.backends:
            _fail(f"{plan.parts[where[node.name]].name} belongs to {owner.name}, which the plan does not list")
        if (refused := plan.refusals.get(node.name, {}).get(owner.name)) is not None:
            _fail(f"%{node.name} is given to {owner.name}, which refused it: {refused}")
        if call is not None and (key := (owner.name, call.key)) not in checked:
            checked.add(key)
            try:
                why = answer(owner, call)
            except CannotSay as raised:
                why = raised.refusal
            if why is not None:
                raise Refused(
                    *_failure(
                        f"%{node.name} = {call} is given to {owner.name}, which refuses it", {owner.name: str(why)}
                    ),
                    owner.name,
                    call,
                    why,
                    line_of(node),
                )


def _cost(gm: fx.GraphModule, plan: Plan, constants: Collection[str]) -> None:
    """Compares the cost that the plan claims with the bill. The tolerance is the rounding of the prices: a tick for
    each call, two for each tensor, one for each part.
    """
    bills = None if plan.claim is None else itemize(gm, plan, constants)
    if plan.claim is None or bills is None:
        return
    claimed, itemized = plan.claim.seconds, sum(b.seconds for b in bills)
    if abs(claimed - itemized) > plan.claim.tick * (3 * len(gm.graph.nodes) + len(plan.parts)) + 1e-9 * itemized:
        _fail(f"it claims {claimed:.6g} seconds by the data sheets, and its bill has {itemized:.6g}")
    if (
        plan.claim.bound > claimed + plan.claim.tick * len(plan.parts) + 1e-9 * claimed
    ):  # the bound has rounded launches
        _fail(f"it claims {claimed:.6g} seconds, and a lower bound of {plan.claim.bound:.6g}")


def _memory(gm: fx.GraphModule, plan: Plan) -> None:
    for room in peak_usage(gm, plan) if plan.claim is not None else ():
        if room.used > room.budget:
            _fail(
                f"it keeps {room.used} bytes alive at once at {' and '.join(room.backends)}, "
                f"which has {room.budget:.0f}"
            )


def _works(node: fx.Node) -> bool:
    """True if some part must run the node: all but inputs, outputs, ``getitem`` and arithmetic on sizes."""
    return node.op == "call_function" and node.target is not operator.getitem and call_of(node) is not None


def _ordered(node: fx.Node) -> bool:
    """Random numbers, collectives, writes in place and calls without a result run in the order of the graph."""
    library, _, operation = str(node.target).partition(".")
    name = operation.partition(".")[0]
    in_place = name.startswith("__i") if name.startswith("__") else name.endswith("_")  # __ilshift__, add_
    return (
        "c10d" in library
        or in_place
        or node.meta.get("val") is None
        or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    )


_ASSERTIONS = ("assert_async", "assert_scalar", "sym_constrain_range", "linalg_check_errors")


def _asserts(gm: fx.GraphModule, node: fx.Node) -> bool:
    """True if the call is an assertion, or takes a graph that contains one."""
    if any(name in str(node.target) for name in _ASSERTIONS):
        return True
    for operand in node.all_input_nodes:
        body = getattr(gm, str(operand.target)) if operand.op == "get_attr" else None
        if isinstance(body, fx.GraphModule) and any(_asserts(body, inner) for inner in body.graph.nodes):
            return True
    return False


def _fail(what: str) -> None:
    raise KeelError(*_failure(what, None))


def _failure(what: str, reasons: dict[str, str] | None) -> tuple[str, str, dict[str, str] | None, None, str]:
    return (
        "bad-plan",
        f"the placement does not hold: {what}.",
        reasons,
        None,
        "This is a defect of Keel, not of a model or a backend. Please report it with KEEL_DUMP=dir.",
    )
