"""Groups nodes of the same owner into the fewest parts.  Works on plain index arrays.

Nodes are numbered in topological order; ``needs[v]`` are the numbers of the nodes that v waits for, all below v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class Users:
    """The users of each node: ``user[first[v]:first[v + 1]]`` need node v, and a user is repeated as often as it
    does.
    """

    first: list[int]
    user: list[int]

    def of(self, v: int) -> list[int]:
        return self.user[self.first[v] : self.first[v + 1]]


def users_of(needs: Sequence[Sequence[int]]) -> Users:
    """Inverts ``needs``, in time and memory linear in its size."""
    counts = np.fromiter(map(len, needs), np.int64, len(needs))
    needed = np.fromiter(chain.from_iterable(needs), np.int64, int(counts.sum()))
    first = np.zeros(len(needs) + 1, np.int64)
    np.cumsum(np.bincount(needed, minlength=len(needs)), out=first[1:])
    user = np.repeat(np.arange(len(needs)), counts)[np.argsort(needed, kind="stable")]
    return Users(first.tolist(), user.tolist())


def cluster(
    colors: Sequence[int],
    needs: Sequence[Sequence[int]],
    launch: Sequence[int] | None = None,
    users: Users | None = None,
) -> list[int]:
    """Returns the group of each node.  A group has one color, and a node's needs lie in its own group or in lower ones.

    Groups are numbered in an order in which they can run, so each is convex and their quotient is acyclic. Each round
    picks one color and takes every node of it that is ready or becomes ready by that. It picks the color with the most
    nodes at the head of a longest path, counted in changes of color. For two colors the rounds can only alternate, and
    their number is minimal: a path of m runs needs m groups, and m + 1 if both colors start such a path. With more
    colors this is a shortest common supersequence problem, NP-hard in general. Every possible first color is tried, and
    the result with the fewest groups is kept. If ``launch`` gives the cost of a group of each color, the cheapest
    result is kept, and of equally cheap ones the one with the fewest groups. For two colors this is the optimum. Time
    and memory O(colors * (nodes + edges)). ``users`` may be given where ``users_of(needs)`` is known.
    """
    if not colors:
        return []
    readers, heights = users or users_of(needs), _heights(colors, needs)
    firsts = sorted({colors[v] for v, needed in enumerate(needs) if not needed})
    prices = [1] * (max(colors) + 1) if launch is None else launch
    if len(several := sorted(set(colors))) == 2 and len(firsts) == 2:
        firsts = [min(firsts, key=lambda first: _alternating(colors, heights, several, prices, first))]
    candidates = [_rounds(colors, needs, readers, heights, first) for first in firsts]
    if len(candidates) == 1:
        return candidates[0]
    return min(candidates, key=lambda groups: (sum(prices[c] for c in owners(groups, colors)), max(groups)))


def cluster_in_one(
    colors: Sequence[int],
    needs: Sequence[Sequence[int]],
    sets: Sequence[Sequence[int]],
    launch: Sequence[int] | None = None,
    users: Users | None = None,
) -> tuple[list[int], tuple[int, ...]]:
    """Returns the group of each node as ``cluster`` does, with each of the ``sets`` in one group, and the indices of
    the sets for which that is not possible: some other node waits for one node of the set, and one node of it for that.

    The nodes of a set have one color. Of sets that are in each other's way, the earlier ones are in one group.
    """
    if not sets:
        return cluster(colors, needs, launch, users), ()
    chosen = list(range(len(sets)))
    if (blocks := contracted(needs, sets)) is None:
        chosen = []
        for i in range(len(sets)):
            if (one_more := contracted(needs, [sets[k] for k in (*chosen, i)])) is not None:
                chosen, blocks = [*chosen, i], one_more
    if blocks is None:
        return cluster(colors, needs, launch, users), tuple(range(len(sets)))
    color_of = dict(zip(blocks.block, colors, strict=True))
    groups = cluster([color_of[b] for b in range(len(blocks.needs))], blocks.needs, launch)
    return [groups[b] for b in blocks.block], tuple(i for i in range(len(sets)) if i not in chosen)


@dataclass(frozen=True)
class Blocks:
    """``block[v]`` is the number of the block of node v, and ``needs[b]`` are the blocks that block b waits for, all
    below b.
    """

    block: list[int]
    needs: list[list[int]]


def contracted(needs: Sequence[Sequence[int]], sets: Sequence[Sequence[int]]) -> Blocks | None:
    """Returns the graph in which each of the ``sets`` is one block, and each other node is a block. Sets with a common
    node are one block. Returns None if the blocks wait for each other. Blocks are numbered in an order in which they
    can run, as near to the order of the nodes as possible (Kahn 1962). Time O((nodes + edges) log nodes).
    """
    first = _first_of_block(len(needs), sets)
    waits: dict[int, set[int]] = {first[v]: set() for v in range(len(needs))}
    for v, needed in enumerate(needs):
        waits[first[v]].update(first[u] for u in needed if first[u] != first[v])
    readers: dict[int, list[int]] = {b: [] for b in waits}
    for b, before in waits.items():
        for u in before:
            readers[u].append(b)
    missing = {b: len(before) for b, before in waits.items()}
    ready = [b for b, count in missing.items() if count == 0]
    heapify(ready)
    number: dict[int, int] = {}
    while ready:
        b = heappop(ready)
        number[b] = len(number)
        for reader in readers[b]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heappush(ready, reader)
    if len(number) < len(waits):
        return None
    return Blocks([number[b] for b in first], [sorted(number[u] for u in waits[b]) for b in number])


def _first_of_block(count: int, sets: Sequence[Sequence[int]]) -> list[int]:
    """The first node of the block of each node."""
    first = list(range(count))

    def root(v: int) -> int:
        while first[v] != v:
            v = first[v]
        return v

    for nodes in sets:
        roots = {root(v) for v in nodes}
        for v in roots:
            first[v] = min(roots)
    return [root(v) for v in range(count)]


def _alternating(
    colors: Sequence[int], heights: Sequence[int], two: Sequence[int], prices: Sequence[int], first: int
) -> tuple[int, int]:
    """Returns the cost and the number of groups if two colors alternate and ``first`` begins. There are as many groups
    as the longest path has runs, and one more if that path begins with the other color.
    """
    tallest = dict.fromkeys(two, 0)
    for c, height in zip(colors, heights, strict=True):
        if height > tallest[c]:
            tallest[c] = height
    other = two[0] + two[1] - first
    count = max(tallest[first], tallest[other] + 1)
    return (count + 1) // 2 * prices[first] + count // 2 * prices[other], count


def owners(groups: Sequence[int], colors: Sequence[int]) -> list[int]:
    """The color of each group."""
    of = dict(zip(groups, colors, strict=True))
    return [of[g] for g in sorted(of)]


def fewest(colors: Sequence[int], needs: Sequence[Sequence[int]]) -> int:
    """Returns a lower bound of the number of groups: the most runs of one color on a path, or the number of colors."""
    return max(max(_heights(colors, needs), default=0), len(set(colors)))


def delay_to_consumers(
    groups: Sequence[int], colors: Sequence[int], needs: Sequence[Sequence[int]], movable: Sequence[bool]
) -> list[int]:
    """Moves each movable node to the latest group of its color that still runs before every user of the node.

    Nodes without users stay where they are. The number of groups does not grow.
    """
    users = users_of(needs)
    out = list(groups)
    color_of = dict(zip(groups, colors, strict=True))
    earlier = _same_color_before(color_of)
    for v in reversed(range(len(out))):
        if not movable[v] or not (later := users.of(v)):
            continue
        bound = min(out[w] - (colors[w] != colors[v]) for w in later)
        latest = bound if color_of[bound] == colors[v] else earlier[bound][colors[v]]
        out[v] = max(out[v], latest)
    return renumbered(out)


def renumbered(groups: Sequence[int]) -> list[int]:
    """Numbers the groups without gaps, in the same order."""
    number = {g: i for i, g in enumerate(sorted(set(groups)))}
    return [number[g] for g in groups]


def _same_color_before(color_of: dict[int, int]) -> list[dict[int, int]]:
    """For each group, the nearest group of each color below it (-1: none)."""
    below = dict.fromkeys(color_of.values(), -1)
    out = []
    for g in range(max(color_of, default=-1) + 1):
        out.append(dict(below))
        below[color_of[g]] = g
    return out


def _heights(colors: Sequence[int], needs: Sequence[Sequence[int]]) -> list[int]:
    """For each node, the most runs of one color on a path that starts there."""
    heights = [1] * len(needs)
    for v in reversed(range(len(needs))):
        height, c = heights[v], colors[v]
        for u in needs[v]:
            runs = height if colors[u] == c else height + 1
            if runs > heights[u]:
                heights[u] = runs
    return heights


def _rounds(
    colors: Sequence[int], needs: Sequence[Sequence[int]], users: Users, heights: Sequence[int], first: int
) -> list[int]:
    groups = [-1] * len(needs)
    missing = [len(needed) for needed in needs]
    waiting: dict[int, list[int]] = {c: [] for c in sorted(set(colors))}
    tallest: dict[int, tuple[int, int]] = {}  # color -> (height, how many nodes of that height wait)

    def wait(v: int) -> None:
        c, (height, count) = colors[v], tallest.get(colors[v], (0, 0))
        waiting[c].append(v)
        tallest[c] = (heights[v], 1) if heights[v] > height else (height, count + (heights[v] == height))

    for v, count in enumerate(missing):
        if count == 0:
            wait(v)
    group, color = 0, first
    while tallest:
        ready, waiting[color] = waiting[color], []
        del tallest[color]
        while ready:
            v = ready.pop()
            groups[v] = group
            for w in users.of(v):
                missing[w] -= 1
                if missing[w] == 0 and colors[w] == color:
                    ready.append(w)
                elif missing[w] == 0:
                    wait(w)
        group += 1
        color = max(tallest, key=lambda c: (*tallest[c], -c), default=color)
    return groups
