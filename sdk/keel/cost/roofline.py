"""Estimates the seconds of calls by a data sheet. The time of a call is the larger of its arithmetic and its memory
traffic (Williams, Waterman and Patterson, "Roofline", 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from keel.cost.sheet import Cost
from keel.cost.work import Sizes, fusable, is_free, named, picked_tensors, work_of
from keel.types import Call


@dataclass(frozen=True)
class Price:
    """The seconds of a call by itself, and of each tensor that it reads or writes, in the order of its tensor arguments
    and results. A tensor's seconds are 0 if it does not pass through memory or is counted in ``alone``.
    """

    alone: float
    read: tuple[float, ...]
    written: tuple[float, ...]


def price(call: Call, cost: Cost, sizes: Sizes = MappingProxyType({}), pieces: Sequence[Call] = ()) -> Price:
    """The seconds of ``call`` on a backend of that sheet.

    With ``pieces``, the arithmetic of a composite is that of its pieces, unless the sheet has an entry for its name.
    """
    work = work_of(call, sizes)
    nothing = Price(0.0, (0.0,) * len(work.read), (0.0,) * len(work.written))
    if is_free(call):
        return nothing
    alone, overridden = _busy(call, cost, sizes, pieces)
    if cost.fuses and fusable(call):
        picked = picked_tensors(call)
        alone += sum(work.read[i] for i in picked) / cost.bandwidth
        return Price(
            alone,
            tuple(0.0 if i in picked else b / cost.bandwidth for i, b in enumerate(work.read)),
            tuple(b / cost.bandwidth for b in work.written),
        )
    traffic, again = _passing(sum(work.read) + sum(work.written), call, cost)
    return replace(nothing, alone=alone if overridden else max(alone, traffic) + again + cost.call)


@dataclass(frozen=True)
class FusedCall:
    """A call of a group that is run as one kernel. ``inner`` has the numbers of its tensor arguments that come from the
    group, each with the number of the call that makes it. ``escapes`` says whether something else uses its results.
    ``pieces`` are those of a composite (see ``price``).
    """

    call: Call
    inner: tuple[tuple[int, int], ...]
    escapes: bool
    pieces: Sequence[Call] = ()


def saved(
    group: Sequence[FusedCall], cost: Cost, sizes: Sizes = MappingProxyType({}), seconds: float | None = None
) -> float:
    """The seconds that a backend with this sheet saves by running calls as one kernel: their separate times with the
    tensors between them, minus the larger of their total arithmetic and their remaining memory traffic. If the backend
    fuses, calls that are loops cost only their arithmetic in both cases. ``seconds`` overrides the estimate; more than
    the calls take is not saved.
    """
    prices = [price(each.call, cost, sizes, each.pieces) for each in group]
    loops = [cost.fuses and fusable(each.call) for each in group]
    separate = sum(p.alone for p in prices) + _between(group, prices, loops)
    if seconds is not None:
        return min(seconds, separate)
    busy = traffic = again = 0.0
    for each, own, loop in zip(group, prices, loops, strict=True):
        if loop:
            busy += own.alone
            continue
        busy += _busy(each.call, cost, sizes, each.pieces)[0]
        work, inside = work_of(each.call, sizes), {i for i, _ in each.inner}
        outer = sum(b for i, b in enumerate(work.read) if i not in inside)
        passing = _passing(outer + (sum(work.written) if each.escapes else 0.0), each.call, cost)
        traffic, again = traffic + passing[0], again + passing[1]
    return max(separate - max(busy, traffic) - again - cost.call, 0.0)


def _between(group: Sequence[FusedCall], prices: Sequence[Price], loops: Sequence[bool]) -> float:
    """The seconds of tensors that pass between loops and other calls of a group and stay in it. They are charged to the
    loops; tensors between loops cost nothing, and others are part of the price of a call.
    """
    read = [0.0] * len(group)
    crosses = [False] * len(group)
    for each, own, loop in zip(group, prices, loops, strict=True):
        for i, maker in each.inner:
            if loops[maker] != loop:
                crosses[maker] = True
                read[maker] = max(read[maker], own.read[i])
    return sum(
        sum(own.written) if loop else read[i]
        for i, (each, own, loop) in enumerate(zip(group, prices, loops, strict=True))
        if crosses[i] and not each.escapes
    )


def crossing(there: Cost, here: Cost, amount: float) -> float:
    """The seconds to copy ``amount`` bytes from one device to another, through host memory."""
    links = [c.link for c in (there, here) if c.link is not None]
    return sum(link.latency + amount / link.bandwidth for link in links)


def _busy(call: Call, cost: Cost, sizes: Sizes, pieces: Sequence[Call]) -> tuple[float, bool]:
    """The seconds of a call's arithmetic, or the sheet's override, and whether it is an override."""
    packet = call.name.rpartition(".")[0]
    override = cost.seconds.get(call.name, cost.seconds.get(packet))
    if override is not None:
        return float(override(call) if callable(override) else override), True
    exact = not pieces or call.name in cost.weights or packet in cost.weights
    return sum(_arithmetic(c, cost, sizes) for c in ((call,) if exact else pieces)), False


def _arithmetic(call: Call, cost: Cost, sizes: Sizes) -> float:
    """The seconds of a call's operations, without memory traffic."""
    if is_free(call):
        return 0.0
    work = work_of(call, sizes)
    rate = cost.flops.get(work.dtype) or min(cost.flops.values(), default=cost.scalars)
    return (work.flops / rate + work.scalars / cost.scalars) * _rate(cost.weights, call)


def _passing(amount: float, call: Call, cost: Cost) -> tuple[float, float]:
    """The seconds of ``amount`` bytes of memory traffic: those that overlap the call's arithmetic, and those of
    additional passes.
    """
    passes, seconds = _rate(cost.passes, call), amount / cost.bandwidth
    return min(passes, 1.0) * seconds, max(passes - 1.0, 0.0) * seconds


def _rate(table: Mapping[str, float], call: Call) -> float:
    """The entry of a table for a call, 1 by default."""
    return next((table[name] for name in named(call) if name in table), 1.0) if table else 1.0


def across(cost: Cost, image: bool) -> float:
    """The seconds per byte of a tensor that comes from or goes to another backend."""
    return (cost.copies + (cost.border if image else 0.0)) / cost.bandwidth
