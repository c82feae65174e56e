"""Which form of a graph is placed, and whether it is worth mixing backends: the cost decides.

Negotiation keeps a call whole if any backend takes it so, however slow that is there.  So by cost the graph is also
negotiated as each backend alone would have it, and the cheapest placement counts: none is dearer, by the data sheets,
than the best single backend with what it leaves to a last resort.  And where that one is dearer by no more than data
sheets are wrong, it is taken: what mixing gains would be lost in the noise, what it costs would not.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.negotiate import negotiate
from keel.partition.assign import Price, place
from keel.partition.bill import bill
from keel.partition.plan import Claim, Plan
from keel.partition.pricing import Pricing, Taken
from keel.partition.problem import Problem
from keel.partition.units import Units
from keel.plugin import Backend
from keel.torch_adapter import Captured

WORTH = 0.1
"""How much of its time a graph must save by mixing backends.  Sheets are measured on calls that run again and again; on
a CPU that others use, in models, calls take up to twice as long, and not on all backends alike."""


def chosen(captured: Captured, backends: Sequence[Backend], *, strict: bool = False, price: Pricing | None = None,
           ) -> tuple[fx.GraphModule, Plan]:
    """The graph in calls that ``backends`` take, and its placement: by what ``price`` says, or by order where there is
    none, or nothing to decide: where last resorts do not compete, and at most one other backend works on its devices.

    Raises what ``negotiate`` and ``place`` raise.
    """
    gm = negotiate(captured, backends, strict=strict)
    if price is not None and not price.compete and _at_home(gm, backends) < 2:
        price = None
    plan = place(gm, backends, gm.meta["keel.refusals"], strict=strict, price=price)
    if price is None or plan.claim is None:
        return gm, plan
    forms, tried = {_form(gm): gm}, [(plan.claim, gm, plan)]
    single: list[tuple[Claim, fx.GraphModule, Plan]] = []
    for some in _alone(backends, price.compete):
        try:
            other = negotiate(captured, some, strict=strict)
        except KeelError:                                     # these few do not take all of it
            continue
        form = _form(other)
        if form not in forms:
            tried += _placed(other, backends, strict, price)
        other = forms.setdefault(form, other)
        single += _placed(other, backends, strict, _among(price, some))
    most = len(gm.graph.nodes) if price.compete else _left(plan)
    best = min((t for t in tried if _left(t[2]) <= most), key=lambda t: t[0].seconds)
    fitting = [t for t in single if _left(t[2]) <= most]
    pure = [t for t in fitting if len({part.owner.name for part in t[2].parts}) == 1]
    alone = min(pure or fitting, key=lambda t: t[0].seconds, default=best)
    worth = _apart(best, price) <= _apart(alone, price) * (1 - WORTH)
    claim, gm, plan = best if worth else alone
    return gm, replace(plan, claim=replace(claim, bound=min(claim.seconds, *(c.bound for c, *_ in tried))))


def _apart(placed: tuple[Claim, fx.GraphModule, Plan], price: Pricing) -> float:
    """The seconds of a placement by its bill, in which a part reads again what another part of its backend read."""
    claim, gm, plan = placed
    bills = bill(gm, plan, price.constants, apart=True) if len(plan.parts) > 1 else None
    return claim.seconds if bills is None else sum(b.seconds for b in bills)


def _at_home(gm: fx.GraphModule, backends: Sequence[Backend]) -> int:
    """How many backends, those of last resort left out, work on a device that the graph's tensors are on."""
    values = (node.meta.get("val") for node in gm.graph.nodes)
    devices = {v.device.type for v in values if isinstance(v, torch.Tensor) and v.dim() > 0}
    return sum(b.device == "*" or b.device in devices for b in backends if not b.last_resort)


def _left(plan: Plan) -> int:
    """How many calls are left to a last resort.  Where it does not compete, no form of a graph leaves it more."""
    return sum(len(part.nodes) for part in plan.parts if part.owner.last_resort)


def _placed(gm: fx.GraphModule, backends: Sequence[Backend], strict: bool,
            price: Price) -> list[tuple[Claim, fx.GraphModule, Plan]]:
    """The placement, if there is one that fits."""
    try:
        plan = place(gm, backends, strict=strict, price=price)
    except KeelError:
        return []
    return [] if plan.claim is None else [(plan.claim, gm, plan)]


def _alone(backends: Sequence[Backend], compete: bool) -> Iterator[tuple[Backend, ...]]:
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

    def priced(units: Units, backends: tuple[Backend, ...], taken: Taken) -> Problem | None:
        mine = taken & np.array([b.name in names for b in backends])
        return price(units, backends, mine) if mine.any(axis=1).all() else None
    return priced


def _form(gm: fx.GraphModule) -> tuple[tuple[str, str], ...]:
    """What tells how far calls are written out."""
    return tuple((node.name, str(node.target)) for node in gm.graph.nodes)
