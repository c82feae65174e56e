"""Finds the best mixture of two placements by one minimum cut: exact for two backends, a step of the method for more.

A tensor's transfer is charged once for all its readers on a place, so the charge is not a sum over edges. It takes one
more node of the network for each tensor and place (Kohli, Ladicky, Torr 2009, "Robust higher order potentials").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keel.placement.solve.problem import Ints, Stars, Terms, ways

_BITS = 30  # bits of the capacities in one flow
_PASSES = 20  # passes that decide nodes before a flow is computed
_WORTH = 0.9  # a pass that leaves more than this share of the arcs is the last


def best_mix_of_two(terms: Terms, low: Ints, high: Ints, *, lean: bool = False) -> Ints:
    """Returns a placement, no more expensive than ``low``, in which each bundle is where ``low`` or ``high`` has it.

    The result is optimal, and of all optima the one with the most from ``low``, in two cases: ``low`` and ``high`` have
    one backend each (apart from bundles on which they agree); or ``high`` is one backend and all ways of a tensor cost
    the same. Otherwise some charges are overestimated. ``lean`` overestimates others, so its result may be better or
    worse. A maximum flow: cubic in the worst case, near-linear on graphs of models as measured.
    """
    net = _Network(low, high)
    both = np.arange(len(low))
    net.weigh(both, terms.cost[both, high] - terms.cost[both, low])
    for stars in terms.stars:
        _charge(net, stars, low, high, lean)
    _reward(net, terms, low, high)
    return np.where(net.cut(), high, low)


class _Network:
    """A network between *low* (the start) and *high* (the end). An arc costs its ticks if its tail is low and its head
    high; a node costs its tilt if it is high. Bundles that are the same in both are left out.
    """

    def __init__(self, low: Ints, high: Ints) -> None:
        self.open = low != high
        self.number = np.where(self.open, np.cumsum(self.open) - 1, -1)
        self.size = self.bundles = int(self.open.sum())
        self.tilts: list[tuple[Ints, Ints]] = []
        self.arcs: list[tuple[Ints, Ints, Ints]] = []

    def weigh(self, bundles: Ints, ticks: Ints) -> None:
        """Charges ``ticks``, which may be negative, if a bundle is high."""
        self.lean(self.number[bundles], ticks)

    def lean(self, nodes: Ints, ticks: Ints) -> None:
        """Charges ``ticks`` if a node is high.  Nodes below 0 stand for bundles that are left out."""
        used = (nodes >= 0) & (ticks != 0)
        self.tilts.append((nodes[used], ticks[used]))

    def more(self, count: int) -> Ints:
        """Adds ``count`` nodes and returns their numbers."""
        self.size += count
        return np.arange(self.size - count, self.size)

    def arc(self, tails: Ints, heads: Ints, ticks: Ints) -> None:
        used = (tails >= 0) & (heads >= 0) & (ticks > 0)
        self.arcs.append((tails[used], heads[used], ticks[used]))

    def cut(self) -> Any:
        """Returns which bundles are high: as few as in any minimum cut."""
        none = np.zeros(0, np.int64)
        tails, heads, ticks = (np.concatenate(a) for a in zip((none, none, none), *self.arcs, strict=True))
        tilt = np.zeros(self.size, np.int64)
        for nodes, charge in self.tilts:
            np.add.at(tilt, nodes, charge)
        high = np.zeros(len(self.open), bool)
        high[self.open] = _cut(tilt, tails, heads, ticks)[: self.bundles]
        return high


def _cut(tilt: Ints, tails: Ints, heads: Ints, ticks: Ints) -> Any:
    """Returns the nodes that are high in the minimum cut with the fewest high nodes.

    First, as often as it helps, each node whose cheapest side does not depend on its neighbors is put on that side.
    """
    high = np.zeros(len(tilt), bool)
    undecided = np.ones(len(tilt), bool)
    for _ in range(_PASSES):
        out, into = np.zeros_like(tilt), np.zeros_like(tilt)
        np.add.at(out, tails, ticks)
        np.add.at(into, heads, ticks)
        falls, rises = undecided & (tilt >= out), undecided & (-tilt > into)
        high |= rises
        undecided &= ~(falls | rises)
        left, reached = falls[tails], rises[heads]
        np.add.at(tilt, heads[left], ticks[left])
        np.add.at(tilt, tails[reached], -ticks[reached])
        inner = undecided[tails] & undecided[heads]
        if inner.sum() > len(inner) * _WORTH:
            break
        tails, heads, ticks = tails[inner], heads[inner], ticks[inner]
    else:
        inner = undecided[tails] & undecided[heads]
    nodes = np.nonzero(undecided)[0]
    if len(nodes):
        number = np.cumsum(undecided) - 1
        high[nodes] = _beyond(tilt[nodes], number[tails[inner]], number[heads[inner]], ticks[inner])
    return high


def _beyond(tilt: Ints, tails: Ints, heads: Ints, ticks: Ints) -> Any:
    """Returns the nodes beyond a minimum cut, as few as possible: those from which the residual network reaches the
    end.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    size = len(tilt)
    falls, rises = np.nonzero(tilt > 0)[0], np.nonzero(tilt < 0)[0]
    tails = np.concatenate([tails, np.full(len(falls), size), rises])
    heads = np.concatenate([heads, falls, np.full(len(rises), size + 1)])
    ticks = np.concatenate([ticks, tilt[falls], -tilt[rises]])
    left = _drained(csr_matrix((ticks, (tails, heads)), shape=(size + 2, size + 2)), size)
    beyond = np.zeros(size + 2, bool)
    beyond[breadth_first_order(left.T.tocsr(), size + 1, return_predecessors=False)] = True
    return beyond[:size]


def _drained(left: Any, start: int) -> Any:
    """Returns the residual capacities after a maximum flow from ``start`` to the node after it.

    SciPy's flow uses 32-bit numbers and overflows silently. So larger capacities are first reduced by a flow of their
    leading bits, and then by a flow of the rest.
    """
    from scipy.sparse.csgraph import maximum_flow

    shift = max(0, int(left.data.max(initial=0)).bit_length() - _BITS)
    while True:
        part = left.copy()
        part.data = np.minimum(left.data >> shift, (1 << _BITS) - 1).astype(np.int32)
        flow = maximum_flow(part, start, start + 1).flow.astype(np.int64)
        flow.eliminate_zeros()
        left = (left - flow * (1 << shift)).tocsr()
        left.eliminate_zeros()
        if not flow.nnz or int(left.data.max(initial=0)) >> shift < 1 << _BITS:
            if shift == 0:
                return left
            shift = max(0, shift - 10)


def _charge(net: _Network, stars: Stars, low: Ints, high: Ints, lean: bool) -> None:
    if not len(stars.maker):
        return
    at_low, at_high = stars.place[low], stars.place[high]
    from_low, from_high = ways(stars, at_low), ways(stars, at_high)  # [tensors, places]
    count, places = from_low.shape
    star, reader = stars.star, stars.reader
    q_low, q_high = at_low[reader], at_high[reader]
    stays = q_low == q_high
    always = np.zeros((count, places), bool)
    always[star[stays], q_low[stays]] = True
    ending = stars.ends >= 0
    always[ending, stars.ends[ending]] = True
    made = stars.maker >= 0
    net.weigh(stars.maker[made], ((from_high - from_low) * always).sum(axis=1)[made])
    from_low, from_high = np.where(always, 0, from_low), np.where(always, 0, from_high)
    star, reader, q_low, q_high = (a[~stays] for a in (star, reader, q_low, q_high))
    lone = np.bincount(star, minlength=count)[star] == 1
    _pairs(
        net,
        stars.maker[star[lone]],
        reader[lone],
        [[way[star[lone], q[lone]] for q in (q_low, q_high)] for way in (from_low, from_high)],
        lean,
    )
    star, reader, q_low, q_high = (a[~lone] for a in (star, reader, q_low, q_high))
    _fans(net, stars.maker, star * places + q_low, reader, from_low, from_high, False, lean)
    _fans(net, stars.maker, star * places + q_high, reader, from_low, from_high, True, lean)


def _pairs(net: _Network, maker: Ints, reader: Ints, ticks: list[list[Ints]], lean: bool) -> None:
    """Adds tensors with one reader that may move: ``ticks[maker is high][reader is high]``."""
    (e00, e01), (e10, e11) = ticks
    excess = np.maximum(e00 + e11 - e01 - e10, 0)
    e01, e10 = (e01, e10 + excess) if lean else (e01 + excess, e10)
    made = maker >= 0
    net.weigh(maker[made], (e10 - e00)[made])
    net.weigh(reader, e11 - e10)
    net.arc(_number(net, maker), net.number[reader], e01 + e10 - e00 - e11)


def _fans(
    net: _Network, makers: Ints, keys: Ints, reader: Ints, from_low: Ints, from_high: Ints, rising: bool, lean: bool
) -> None:
    """Adds tensors with several readers that may move. ``keys`` are the tensor and the place to which each reader
    brings it: its place when high if ``rising``, else when low. A node of the network states that some reader is there.
    """
    first_rows, which = np.unique(keys, return_inverse=True)
    paid_low, paid_high = from_low.ravel()[first_rows], from_high.ravel()[first_rows]
    maker = makers[first_rows // from_low.shape[1]]
    node = net.more(len(first_rows))
    needed = np.minimum(paid_low, paid_high)
    along, against = np.maximum(paid_high - paid_low, 0), np.maximum(paid_low - paid_high, 0)
    full = needed + along + against  # as good as a reader that must be there: the charge is never higher
    if rising:  # paid by a high reader, and by a maker that stays low
        along, against = against, along
        net.arc(node[which], net.number[reader], full[which])
        net.arc(_number(net, maker), node, along)
        net.lean(node, needed if lean else needed + against)
    else:  # paid by a low reader, and by a maker that goes high
        net.arc(net.number[reader], node[which], full[which])
        net.arc(node, _number(net, maker), along)
        net.lean(node, -(needed if lean else needed + against))
    if lean:
        net.lean(_number(net, maker), against if rising else -against)


def _number(net: _Network, maker: Ints) -> Ints:
    """Returns the nodes of makers, or -1 if a maker is left out or missing."""
    return np.where(maker >= 0, net.number[maker], -1)


def _reward(net: _Network, terms: Terms, low: Ints, high: Ints) -> None:
    w = terms.wholes
    if not len(w.backend):
        return
    count, backend = len(w.backend), w.backend[w.which]
    in_low, in_high = low[w.member] == backend, high[w.member] == backend

    def some(of: Any) -> Any:
        return np.bincount(w.which[of], minlength=count) > 0

    possible = ~some(~in_low & ~in_high) & ~(some(in_low & ~in_high) & some(in_high & ~in_low))
    for own, other in ((in_low, in_high), (in_high, in_low)):
        attainable = possible & some(own & ~other)
        number = np.where(attainable, np.cumsum(attainable) - 1, 0)
        node = net.more(int(attainable.sum()))
        member = (own & ~other) & attainable[w.which]
        nodes, bundles = node[number[w.which[member]]], net.number[w.member[member]]
        if own is in_low:
            net.arc(nodes, bundles, w.worth[w.which[member]])
            net.lean(node, w.worth[attainable])
        else:
            net.arc(bundles, nodes, w.worth[w.which[member]])
            net.lean(node, -w.worth[attainable])
