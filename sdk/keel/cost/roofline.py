"""The seconds of calls by a data sheet.

A call takes the longer of its arithmetic and its traffic with memory (Williams, Waterman and Patterson, "Roofline",
2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from keel.cost.sheet import Cost, Pattern
from keel.cost.work import Sizes, fusable, is_free, named, picked_tensors, work_of
from keel.types import Call


@dataclass(frozen=True)
class Price:
    """Seconds: of a call by itself, and of each tensor that it reads and writes where that passes through memory and is
    not in ``alone`` already, in the order of its tensor arguments and results.
    """

    alone: float
    read: tuple[float, ...]
    written: tuple[float, ...]


def price(call: Call, cost: Cost, sizes: Sizes = MappingProxyType({}), pieces: Sequence[Call] = ()) -> Price:
    """The seconds of ``call`` on a backend of that sheet.

    A composite may be given with its ``pieces``: then its arithmetic is theirs, unless the sheet says of it by name
    what it takes.
    """
    work = work_of(call, sizes)
    nothing = Price(0.0, (0.0,) * len(work.read), (0.0,) * len(work.written))
    if is_free(call):
        return nothing
    alone, given = _busy(call, cost, sizes, pieces)
    if cost.fuses and fusable(call):
        picked = picked_tensors(call)
        alone += sum(work.read[i] for i in picked) / cost.bandwidth
        return Price(
            alone,
            tuple(0.0 if i in picked else b / cost.bandwidth for i, b in enumerate(work.read)),
            tuple(b / cost.bandwidth for b in work.written),
        )
    traffic, again = _passing(sum(work.read) + sum(work.written), call, cost)
    return replace(nothing, alone=alone if given else max(alone, traffic) + again + cost.call)


@dataclass(frozen=True)
class InChain:
    """A call of a pattern: which of its tensor arguments the call before it gives, and its pieces (see ``price``)."""

    call: Call
    inner: tuple[int, ...]
    pieces: Sequence[Call] = ()


def saved(chain: Sequence[InChain], pattern: Pattern, cost: Cost, sizes: Sizes = MappingProxyType({})) -> float:
    """The seconds that a backend of that sheet saves by running calls as one: what they and the tensors between them
    take one by one, less the longer of all their arithmetic and of what they read and write besides.

    Calls that are loops of a backend that fuses pay for no more than their arithmetic already, and go on doing so.
    """
    separate = busy = traffic = again = 0.0
    before: tuple[bool, Price] | None = None
    for i, link in enumerate(chain):
        own, work = price(link.call, cost, sizes, link.pieces), work_of(link.call, sizes)
        loop = cost.fuses and fusable(link.call)
        separate += own.alone
        if before is not None and before[0] != loop:  # what loops pass on is charged by tensor
            separate += max((own.read[j] for j in link.inner), default=0.0) if loop else sum(before[1].written)
        busy += own.alone if loop else _busy(link.call, cost, sizes, link.pieces)[0]
        if not loop:
            outer = sum(b for j, b in enumerate(work.read) if j not in link.inner)
            outer += sum(work.written) if i == len(chain) - 1 else 0.0
            passing = _passing(outer, link.call, cost)
            traffic, again = traffic + passing[0], again + passing[1]
        before = loop, own
    if pattern.seconds is not None:
        return min(pattern.seconds, separate)
    return max(separate - max(busy, traffic) - again - cost.call, 0.0)


def crossing(there: Cost, here: Cost, amount: float) -> float:
    """The seconds that ``amount`` bytes take from one device's memory to another's, through the host's."""
    links = [c.link for c in (there, here) if c.link is not None]
    return sum(link.latency + amount / link.bandwidth for link in links)


def _busy(call: Call, cost: Cost, sizes: Sizes, pieces: Sequence[Call]) -> tuple[float, bool]:
    """The seconds of a call's arithmetic, or what the sheet says that it takes, and whether it does."""
    packet = call.name.rpartition(".")[0]
    given = cost.seconds.get(call.name, cost.seconds.get(packet))
    if given is not None:
        return float(given(call) if callable(given) else given), True
    exact = not pieces or call.name in cost.weights or packet in cost.weights
    return sum(_arithmetic(c, cost, sizes) for c in ((call,) if exact else pieces)), False


def _arithmetic(call: Call, cost: Cost, sizes: Sizes) -> float:
    """The seconds of a call's operations, were its operands at hand."""
    if is_free(call):
        return 0.0
    work = work_of(call, sizes)
    rate = cost.flops.get(work.dtype) or min(cost.flops.values(), default=cost.scalars)
    return (work.flops / rate + work.scalars / cost.scalars) * _rate(cost.weights, call)


def _passing(amount: float, call: Call, cost: Cost) -> tuple[float, float]:
    """The seconds that ``amount`` bytes go through memory, beside the arithmetic of the call and besides."""
    passes, seconds = _rate(cost.passes, call), amount / cost.bandwidth
    return min(passes, 1.0) * seconds, max(passes - 1.0, 0.0) * seconds


def _rate(table: Mapping[str, float], call: Call) -> float:
    """What a table of a sheet says of a call; 1 where it says nothing."""
    return next((table[name] for name in named(call) if name in table), 1.0) if table else 1.0


def across(cost: Cost, image: bool) -> float:
    """The seconds by the byte of a tensor that comes from or goes to another backend."""
    return (cost.copies + (cost.border if image else 0.0)) / cost.bandwidth
