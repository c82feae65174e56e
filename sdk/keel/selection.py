"""Which form of a graph is placed, and whether it is worth mixing backends: the cost decides.

Legalization keeps a call whole if any backend takes it so, however slow that is there.  So by cost the graph is also
legalized as each backend alone would have it, and the cheapest placement counts: none is dearer, by the data sheets,
than the best single backend with what it leaves to a last resort.

Sheets are off, each by its own ``doubt``.  What stays on the best single backend takes the same either way; so a
mixture is made of those calls only that are faster elsewhere if all of that one is faster than its sheet says, and all
of the others slower, by as much as they are in doubt.  The best such mixture is again a placement problem, with other
rates, and so small parts that gain less than sheets are off, moves and launches counted, are not made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import fx

from keel.cost.assumed import assumed_sheets
from keel.cost.sheet import slowed
from keel.errors import KeelError
from keel.extras import missing
from keel.graph.legalize import Legalized, legalize
from keel.placement.audit.itemized_cost import itemize
from keel.placement.audit.verify import Refused, verify_placement
from keel.placement.call_graph import CallGraph
from keel.placement.fallback_cost import FALLBACK_COST
from keel.placement.place import Price, place
from keel.placement.placement import CostEstimate, Plan, Refusals
from keel.placement.solve.build_problem import Mask, Pricing
from keel.placement.solve.problem import Problem
from keel.placement.support_cache import SupportCache
from keel.plugin import Backend
from keel.runtime.compile_parts import PartFailure, refusals_without
from keel.settings import Settings, pricing
from keel.torch_adapter import Captured

Placed = tuple[CostEstimate, fx.GraphModule, Plan]


@dataclass(frozen=True)
class Selection:
    """A form of a graph and its placement; where that is by cost, also those on one backend alone that has all of it,
    the cheapest of each backend and the cheapest first.
    """

    gm: fx.GraphModule
    plan: Plan
    alone: tuple[tuple[fx.GraphModule, Plan], ...] = ()

    def rivals(self, selected: Plan, within: float) -> list[tuple[fx.GraphModule, Plan]]:
        """The placements on one backend that are other programs than ``selected``, a placement of ``gm``, and take at
        most ``within`` times as long by the data sheets.
        """
        most, own = within * _seconds(selected), (_signature(self.gm), _split(selected))
        return [
            (gm, plan) for gm, plan in self.alone if _seconds(plan) <= most and (_signature(gm), _split(plan)) != own
        ]


class Planner:
    """Places the forms of one graph.  Its methods raise what ``place`` raises, and ``Fault`` where a backend
    contradicts itself or its data sheet fails.
    """

    def __init__(self, captured: Captured, settings: Settings) -> None:
        self.captured, self.strict = captured, settings.strict
        self.constants = frozenset(captured.constants)
        self.price: Pricing | None
        self.assumes = False
        assumes = settings.placement == "auto" and not settings.strict and not missing("placement")
        if assumes and (assumed := _with_assumed_sheets(captured.gm, settings.backends)):
            self.price, backends, self.assumes = Pricing(self.constants, compete=True), assumed, True
        else:
            self.price, backends = pricing(settings, self.constants), settings.backends
        self.support = SupportCache(backends, strict=settings.strict)

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The backends, each of which answers a question once."""
        return self.support.backends

    def select(self, legalized: Legalized) -> Selection:
        """The form and the placement to compile: the cheapest, if graphs are placed by cost. A backend whose sheet is
        assumed, and that would get nothing, gets what it takes if that is one part.
        """
        selected = select_placement(self.captured, legalized, self.backends, strict=self.strict, price=self.price)
        if self.assumes and all(part.owner.last_resort for part in selected.plan.parts):
            by_order = place(legalized.gm, self.backends, legalized.refusals, strict=self.strict)
            if sum(not part.owner.last_resort for part in by_order.parts) == 1:
                return Selection(legalized.gm, by_order)
        return selected

    def replan(self, gm: fx.GraphModule, plan: Plan, failed: Sequence[PartFailure]) -> tuple[Plan, list[PartFailure]]:
        """A plan without the claims of parts that could not be compiled, and the failures that it avoids: all, or the
        first alone where the others leave a call without an owner.

        Raises the error of the first failure if there is no such plan, and always under ``strict``.
        """
        price = self.price if plan.claim is not None else None
        for avoided in () if self.strict else (failed, failed[:1]):
            refusals = refusals_without(plan, avoided)
            with suppress(KeelError):
                again = replan(gm, self.backends, refusals, strict=self.strict, price=price)
                return self.verified(gm, again), list(avoided)
        raise failed[0].error from failed[0].raised

    def verified(self, gm: fx.GraphModule, plan: Plan) -> Plan:
        """The plan with the backends that the user gave, which are asked again about each call.

        Raises KeelError[bad-plan] if it does not hold.
        """
        self.support.confirm_claims(gm)
        plan = self.support.of_the_user(plan)
        try:
            verify_placement(gm, plan, self.constants)
        except Refused as refused:
            raise self.support.contradiction(refused) or refused from None
        return plan


def select_placement(
    captured: Captured,
    legalized: Legalized,
    backends: Sequence[Backend],
    *,
    strict: bool = False,
    price: Pricing | None = None,
) -> Selection:
    """Places the ``legalized`` graph, or another form of it. Placement is by ``price``; it is by order if there is no
    price, or if there is no choice: last resorts do not compete, and at most one other backend works on the graph's
    devices.

    Raises what ``legalize`` and ``place`` raise.
    """
    gm = legalized.gm
    if price is not None and not price.compete and len(_native_backends(gm, backends)) < 2:
        price = None
    plan = place(gm, backends, legalized.refusals, strict=strict, price=price)
    if price is None or plan.claim is None:
        return Selection(gm, plan)
    forms, candidates = {_signature(gm): gm}, [(plan.claim, gm, plan)]
    single: list[Placed] = []
    for some in _single_backend_sets(backends, price.compete):
        try:
            other = legalize(captured, some, strict=strict).gm
        except KeelError:  # these few do not take all of it
            continue
        form = _signature(other)
        if form not in forms:
            candidates += _placed(other, backends, strict, price)
        other = forms.setdefault(form, other)
        single += _placed(other, backends, strict, _among(price, some))
    most = len(gm.graph.nodes) if price.compete else _fallback_calls(plan)
    best = min((t for t in candidates if _fallback_calls(t[2]) <= most), key=lambda t: t[0].seconds)
    fitting = [t for t in single if _fallback_calls(t[2]) <= most]
    pure = [t for t in fitting if len(_owners(t[2])) == 1]
    alone = min(pure or fitting, key=lambda t: t[0].seconds, default=best)
    claim, gm, plan = _robust_selection(best, alone, backends, strict, price, most)
    bound = min(claim.seconds, *(c.bound for c, *_ in candidates))
    cheapest: dict[str, tuple[fx.GraphModule, Plan]] = {}
    for own, written, one in sorted(pure, key=lambda t: t[0].seconds):
        own = replace(own, bound=min(own.seconds, bound))  # what one backend is bound by, others may undercut
        cheapest.setdefault(one.parts[0].owner.name, (written, replace(one, claim=own)))
    return Selection(gm, replace(plan, claim=replace(claim, bound=bound)), tuple(cheapest.values()))


def replan(
    gm: fx.GraphModule,
    backends: Sequence[Backend],
    refusals: Refusals,
    *,
    strict: bool = False,
    price: Pricing | None = None,
) -> Plan:
    """A graph that was selected, placed once more, with more ``refusals``: by cost, if there is a ``price``.

    Raises what ``place`` raises.
    """
    plan = place(gm, backends, refusals, strict=strict, price=price)
    if price is None or plan.claim is None:
        return plan
    placed = plan.claim, gm, plan
    most = len(gm.graph.nodes) if price.compete else _fallback_calls(plan)
    claim, _, selected = _robust_selection(placed, placed, backends, strict, price, most, refusals)
    return replace(selected, claim=replace(claim, bound=min(claim.seconds, plan.claim.bound)))


def _robust_selection(
    best: Placed,
    alone: Placed,
    backends: Sequence[Backend],
    strict: bool,
    price: Pricing,
    most: int,
    refusals: Refusals | None = None,
) -> Placed:
    """Returns the cheapest placement if the main backend of ``alone`` is faster than its sheet, and all others slower,
    each by its ``doubt``. Returns ``alone`` if that is as cheap.
    """
    owners = _owners(best[2])
    if len(owners) == 1 and owners == _owners(alone[2]):
        return best
    sheets = {b.name: b.cost or FALLBACK_COST for b in backends}
    anchor = _dominant_backend(alone, price)
    doubted = [
        replace(b, cost=slowed(sheets[b.name], 1 + sheets[b.name].doubt * (-1 if b.name == anchor else 1)))
        for b in backends
    ]
    candidates = [alone, best]
    for gm in {id(t[1]): t[1] for t in (best, alone)}.values():
        candidates += [_repriced(placed, backends, price) for placed in _placed(gm, doubted, strict, price, refusals)]
    return min((t for t in candidates if _fallback_calls(t[2]) <= most), key=lambda t: _doubted(t, doubted, price))


def _dominant_backend(placed: Placed, price: Pricing) -> str:
    """The backend that has most of the work."""
    _, gm, plan = placed
    work = Counter[str]()
    for part, each in zip(plan.parts, itemize(gm, plan, price.constants) or (), strict=False):
        work[part.owner.name] += 1 + int(1e12 * each.seconds)
    return max(work, key=lambda name: work[name], default="")


def _repriced(placed: Placed, backends: Sequence[Backend], price: Pricing) -> Placed:
    """A plan that was made with other sheets, with those that the backends have."""
    claim, gm, plan = placed
    plan = _among_these(plan, backends)
    seconds = sum(b.seconds for b in itemize(gm, plan, price.constants) or ())
    claim = replace(claim, seconds=seconds, bound=min(claim.bound, seconds))
    return claim, gm, replace(plan, claim=claim)


def _doubted(placed: Placed, doubted: Sequence[Backend], price: Pricing) -> float:
    """The seconds of a placement by the bill of those sheets, in which a part reads again what another part of its
    backend read.
    """
    _, gm, plan = placed
    return sum(b.seconds for b in itemize(gm, _among_these(plan, doubted), price.constants, per_part=True) or ())


def _among_these(plan: Plan, backends: Sequence[Backend]) -> Plan:
    """The plan with backends of the same names, and with their sheets."""
    own = {b.name: b for b in backends}
    return replace(
        plan, backends=tuple(backends), parts=tuple(replace(part, owner=own[part.owner.name]) for part in plan.parts)
    )


def _seconds(plan: Plan) -> float:
    return math.inf if plan.claim is None else plan.claim.seconds


def _split(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(part.owner.name, part.nodes) for part in plan.parts]


def _owners(plan: Plan) -> set[str]:
    return {part.owner.name for part in plan.parts}


def _devices(gm: fx.GraphModule) -> set[str]:
    """The types of the devices that the graph's tensors are on, those without dimensions left out."""
    values = (node.meta.get("val") for node in gm.graph.nodes)
    return {v.device.type for v in values if isinstance(v, torch.Tensor) and v.dim() > 0}


def _native_backends(gm: fx.GraphModule, backends: Sequence[Backend]) -> list[Backend]:
    """The backends, those of last resort left out, that work on a device that the graph's tensors are on."""
    devices = _devices(gm)
    return [b for b in backends if not b.last_resort and (b.device == "*" or b.device in devices)]


def _with_assumed_sheets(gm: fx.GraphModule, backends: Sequence[Backend]) -> tuple[Backend, ...]:
    """The backends, with the sheets that are assumed (see ``keel.cost.assumed``), if exactly one backend for the
    graph's devices shares it with a last resort, and has no data sheet. Empty otherwise, and if that backend says
    itself which calls it prefers.
    """
    native, last = _native_backends(gm, backends), [b for b in backends if b.last_resort]
    if len(native) != 1 or len(last) != 1 or last[0].cost is None:
        return ()
    [own], [rest] = native, last
    if own.cost is not None or own.prefers is not None:
        return ()
    device = own.device if own.device != "*" else min(_devices(gm) - {"cpu"}, default="cpu")
    fast, slow = assumed_sheets(last[0].cost, device, fuses=own.target is not None)
    sheets = {own.name: fast, rest.name: slow}
    return tuple(replace(b, cost=sheets.get(b.name, b.cost)) for b in backends)


def _fallback_calls(plan: Plan) -> int:
    """How many calls are left to a last resort.  Where it does not compete, no form of a graph leaves it more."""
    return sum(len(part.nodes) for part in plan.parts if part.owner.last_resort)


def _placed(
    gm: fx.GraphModule, backends: Sequence[Backend], strict: bool, price: Price, refusals: Refusals | None = None
) -> list[Placed]:
    """The placement, if there is one that fits."""
    try:
        plan = place(gm, backends, refusals, strict=strict, price=price)
    except KeelError:
        return []
    return [] if plan.claim is None else [(plan.claim, gm, plan)]


def _single_backend_sets(backends: Sequence[Backend], compete: bool) -> Iterator[tuple[Backend, ...]]:
    """Each backend with those of last resort; if they compete, each without them too, and those alone."""
    last = tuple(b for b in backends if b.last_resort)
    if last and compete:
        yield from ((b,) for b in backends if not b.last_resort)
    yield from ((b, *last) for b in backends if not b.last_resort)
    if last and compete:
        yield last


def _among(price: Price, some: Sequence[Backend]) -> Price:
    """Prices of placements on a few backends."""
    names = {b.name for b in some}

    def priced(units: CallGraph, backends: tuple[Backend, ...], answers: Mask) -> Problem | None:
        supported = answers & np.array([b.name in names for b in backends])
        return price(units, backends, supported) if supported.any(axis=1).all() else None

    return priced


def _signature(gm: fx.GraphModule) -> tuple[tuple[str, str], ...]:
    """What tells how far calls are written out."""
    return tuple((node.name, str(node.target)) for node in gm.graph.nodes)
