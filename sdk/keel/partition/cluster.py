"""From one owner per node to the fewest parts: which nodes of one owner run together, on plain index arrays.

Nodes are numbered in topological order; ``needs[v]`` are the numbers of the nodes that v waits for, all below v.
"""
from __future__ import annotations

from collections.abc import Sequence


def cluster(colours: Sequence[int], needs: Sequence[Sequence[int]]) -> list[int]:
    """The group of each node: groups are of one colour, and a node's needs lie in its own group or in lower ones.

    Groups are numbered in an order in which they can run, so each is convex and their quotient is acyclic.  In each
    round one colour takes every node that is ready, and those that become ready by that; the colour taken is the one
    that holds the most nodes at the head of a longest path, counted in changes of colour.  For two colours the rounds
    can only alternate, and their number is the least possible: a path of m runs needs m groups, and m + 1 when there
    are such paths from both colours.  More colours make it a shortest common supersequence problem, NP-hard in general;
    the best of the possible beginnings is kept.  Time and memory O(colours * (nodes + edges)).
    """
    users, heights = _users(needs), _heights(colours, needs)
    firsts = sorted({colours[v] for v, wanted in enumerate(needs) if not wanted})
    found = [_rounds(colours, needs, users, heights, first) for first in firsts]
    return min(found, key=lambda groups: max(groups, default=0)) if found else []


def fewest(colours: Sequence[int], needs: Sequence[Sequence[int]]) -> int:
    """A lower bound of the number of groups: the most runs of one colour on a path, or the number of colours."""
    return max(max(_heights(colours, needs), default=0), len(set(colours)))


def sink(groups: Sequence[int], colours: Sequence[int], needs: Sequence[Sequence[int]],
         movable: Sequence[bool]) -> list[int]:
    """The groups, with each movable node in the latest group of its colour that still runs before what needs it.

    What nothing needs stays where it is.  The number of groups does not grow.
    """
    users = _users(needs)
    out = list(groups)
    colour_of = dict(zip(groups, colours, strict=True))
    earlier = _same_colour_before(colour_of)
    for v in reversed(range(len(out))):
        if not movable[v] or not users[v]:
            continue
        bound = min(out[w] - (colours[w] != colours[v]) for w in users[v])
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


def _users(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in needs]
    for v, wanted in enumerate(needs):
        for u in dict.fromkeys(wanted):
            users[u].append(v)
    return users


def _heights(colours: Sequence[int], needs: Sequence[Sequence[int]]) -> list[int]:
    """For each node, the most runs of one colour on a path that starts there."""
    heights = [1] * len(needs)
    for v in reversed(range(len(needs))):
        for u in needs[v]:
            heights[u] = max(heights[u], heights[v] + (colours[u] != colours[v]))
    return heights


def _rounds(colours: Sequence[int], needs: Sequence[Sequence[int]], users: Sequence[Sequence[int]],
            heights: Sequence[int], first: int) -> list[int]:
    groups = [-1] * len(needs)
    missing = [len(set(wanted)) for wanted in needs]
    waiting: dict[int, list[int]] = {c: [] for c in sorted(set(colours))}
    tallest: dict[int, tuple[int, int]] = {}                  # colour -> (height, how many nodes of that height wait)

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
            for w in users[v]:
                missing[w] -= 1
                if missing[w] == 0 and colours[w] == colour:
                    ready.append(w)
                elif missing[w] == 0:
                    wait(w)
        group += 1
        colour = max(tallest, key=lambda c: (*tallest[c], -c), default=colour)
    return groups
