"""From one owner per node to the fewest parts: which nodes of one owner run together, on plain index arrays.

Nodes are numbered in topological order; ``needs[v]`` are the numbers of the nodes that v waits for, all below v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class Users:
    """Which nodes need each: ``user[first[v]:first[v + 1]]`` need node v, one as often as it does."""

    first: list[int]
    user: list[int]

    def of(self, v: int) -> list[int]:
        return self.user[self.first[v] : self.first[v + 1]]


def users_of(needs: Sequence[Sequence[int]]) -> Users:
    """``needs`` turned round, in time and memory linear in them."""
    counts = np.fromiter(map(len, needs), np.int64, len(needs))
    needed = np.fromiter(chain.from_iterable(needs), np.int64, int(counts.sum()))
    first = np.zeros(len(needs) + 1, np.int64)
    np.cumsum(np.bincount(needed, minlength=len(needs)), out=first[1:])
    user = np.repeat(np.arange(len(needs)), counts)[np.argsort(needed, kind="stable")]
    return Users(first.tolist(), user.tolist())


def cluster(
    colours: Sequence[int],
    needs: Sequence[Sequence[int]],
    launch: Sequence[int] | None = None,
    users: Users | None = None,
) -> list[int]:
    """The group of each node: groups are of one colour, and a node's needs lie in its own group or in lower ones.

    Groups are numbered in an order in which they can run, so each is convex and their quotient is acyclic.  In each
    round one colour takes every node that is ready, and those that become ready by that; the colour taken is the one
    that holds the most nodes at the head of a longest path, counted in changes of colour.  For two colours the rounds
    can only alternate, and their number is the least possible: a path of m runs needs m groups, and m + 1 when there
    are such paths from both colours.  More colours make it a shortest common supersequence problem, NP-hard in general;
    the best of the possible beginnings is kept: the one with the fewest groups or, where ``launch`` says what a group
    of each colour costs, the cheapest (of those, the one with the fewest), which for two colours is the cheapest there
    is.  Time and memory O(colours * (nodes + edges)).  ``users`` may be given where ``users_of(needs)`` is known.
    """
    if not colours:
        return []
    found, heights = users or users_of(needs), _heights(colours, needs)
    firsts = sorted({colours[v] for v, wanted in enumerate(needs) if not wanted})
    prices = [1] * (max(colours) + 1) if launch is None else launch
    if len(several := sorted(set(colours))) == 2 and len(firsts) == 2:
        firsts = [min(firsts, key=lambda first: _alternating(colours, heights, several, prices, first))]
    tried = [_rounds(colours, needs, found, heights, first) for first in firsts]
    if len(tried) == 1:
        return tried[0]
    return min(tried, key=lambda groups: (sum(prices[c] for c in owners(groups, colours)), max(groups)))


def _alternating(
    colours: Sequence[int], heights: Sequence[int], two: Sequence[int], prices: Sequence[int], first: int
) -> tuple[int, int]:
    """What groups of two colours in turn cost, ``first`` first, and how many they are: as many as the longest path has
    runs, and one more where that begins with the other colour."""
    tallest = dict.fromkeys(two, 0)
    for c, height in zip(colours, heights, strict=True):
        if height > tallest[c]:
            tallest[c] = height
    other = two[0] + two[1] - first
    count = max(tallest[first], tallest[other] + 1)
    return (count + 1) // 2 * prices[first] + count // 2 * prices[other], count


def owners(groups: Sequence[int], colours: Sequence[int]) -> list[int]:
    """The colour of each group."""
    of = dict(zip(groups, colours, strict=True))
    return [of[g] for g in sorted(of)]


def fewest(colours: Sequence[int], needs: Sequence[Sequence[int]]) -> int:
    """A lower bound of the number of groups: the most runs of one colour on a path, or the number of colours."""
    return max(max(_heights(colours, needs), default=0), len(set(colours)))


def delay_to_consumers(
    groups: Sequence[int], colours: Sequence[int], needs: Sequence[Sequence[int]], movable: Sequence[bool]
) -> list[int]:
    """The groups, with each movable node in the latest group of its colour that still runs before what needs it.

    What nothing needs stays where it is.  The number of groups does not grow.
    """
    users = users_of(needs)
    out = list(groups)
    colour_of = dict(zip(groups, colours, strict=True))
    earlier = _same_colour_before(colour_of)
    for v in reversed(range(len(out))):
        if not movable[v] or not (later := users.of(v)):
            continue
        bound = min(out[w] - (colours[w] != colours[v]) for w in later)
        latest = bound if colour_of[bound] == colours[v] else earlier[bound][colours[v]]
        out[v] = max(out[v], latest)
    return renumbered(out)


def renumbered(groups: Sequence[int]) -> list[int]:
    """The groups numbered without gaps, in the same order."""
    number = {g: i for i, g in enumerate(sorted(set(groups)))}
    return [number[g] for g in groups]


def _same_colour_before(colour_of: dict[int, int]) -> list[dict[int, int]]:
    """For each group, the nearest group of each colour below it (-1: none)."""
    below = dict.fromkeys(colour_of.values(), -1)
    out = []
    for g in range(max(colour_of, default=-1) + 1):
        out.append(dict(below))
        below[colour_of[g]] = g
    return out


def _heights(colours: Sequence[int], needs: Sequence[Sequence[int]]) -> list[int]:
    """For each node, the most runs of one colour on a path that starts there."""
    heights = [1] * len(needs)
    for v in reversed(range(len(needs))):
        height, c = heights[v], colours[v]
        for u in needs[v]:
            runs = height if colours[u] == c else height + 1
            if runs > heights[u]:
                heights[u] = runs
    return heights


def _rounds(
    colours: Sequence[int], needs: Sequence[Sequence[int]], users: Users, heights: Sequence[int], first: int
) -> list[int]:
    groups = [-1] * len(needs)
    missing = [len(wanted) for wanted in needs]
    waiting: dict[int, list[int]] = {c: [] for c in sorted(set(colours))}
    tallest: dict[int, tuple[int, int]] = {}  # colour -> (height, how many nodes of that height wait)

    def wait(v: int) -> None:
        c, (height, count) = colours[v], tallest.get(colours[v], (0, 0))
        waiting[c].append(v)
        tallest[c] = (heights[v], 1) if heights[v] > height else (height, count + (heights[v] == height))

    for v, count in enumerate(missing):
        if count == 0:
            wait(v)
    group, colour = 0, first
    while tallest:
        ready, waiting[colour] = waiting[colour], []
        del tallest[colour]
        while ready:
            v = ready.pop()
            groups[v] = group
            for w in users.of(v):
                missing[w] -= 1
                if missing[w] == 0 and colours[w] == colour:
                    ready.append(w)
                elif missing[w] == 0:
                    wait(w)
        group += 1
        colour = max(tallest, key=lambda c: (*tallest[c], -c), default=colour)
    return groups
