"""Which form of a graph is placed: how far its calls are written out depends on who is asked, and the cost decides.

Negotiation keeps a call whole if any backend takes it so, however slow that is there.  So by cost the graph is also
negotiated as each backend alone would have it, and the cheapest placement counts: none is dearer, by the data sheets,
than the best single backend with what it leaves to a last resort.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from keel.errors import KeelError
from keel.graph.negotiate import negotiate
from keel.partition.assign import Price, place
from keel.partition.plan import Plan
from keel.plugin import Backend
from keel.torch_adapter import Captured


def chosen(captured: Captured, backends: Sequence[Backend], *, strict: bool = False, price: Price | None = None,
           ) -> tuple[fx.GraphModule, Plan]:
    """The graph in calls that ``backends`` take, and its placement: by order, or the cheapest that ``price`` finds.

    Raises what ``negotiate`` and ``place`` raise.
    """
    gm = negotiate(captured, backends, strict=strict)
    plan = place(gm, backends, gm.meta["keel.refusals"], strict=strict, price=price)
    if plan.claim is None:
        return gm, plan
    least, seen = plan.claim.seconds, {_form(gm)}
    for some in _alone(backends):
        try:
            other = negotiate(captured, some, strict=strict)
        except KeelError:                                     # these few do not take all of it
            continue
        if (form := _form(other)) in seen:
            continue
        seen.add(form)
        found = place(other, backends, strict=strict, price=price)
        if found.claim is not None and found.claim.seconds < least:
            gm, plan, least = other, found, found.claim.seconds
    return gm, plan


def _alone(backends: Sequence[Backend]) -> Iterator[tuple[Backend, ...]]:
    """Each backend with those of last resort, and those alone."""
    last = tuple(b for b in backends if b.last_resort)
    yield from ((b, *last) for b in backends if not b.last_resort)
    if last:
        yield last


def _form(gm: fx.GraphModule) -> tuple[tuple[str, str], ...]:
    """What tells how far calls are written out."""
    return tuple((node.name, str(node.target)) for node in gm.graph.nodes)
