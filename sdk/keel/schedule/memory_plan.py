"""Memory planning: intermediate tensors share one arena by lifetime.

Best fit by decreasing size over fixed lifetimes (the greedy-by-size rule of Pisarchyk and Lee, Efficient memory
management for deep neural net inference, 2020): each tensor goes to the lowest sufficient gap between the tensors that
are alive at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the width of the widest vector register in use."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``size`` bytes from step ``first`` to step ``last``, both inclusive."""

    size: int
    first: int
    last: int


def pack(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """Returns an offset in bytes for each lifetime, and the arena's size; tensors alive at the same time do not
    overlap.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for k in sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].size, lifetimes[k].first)):
        lifetime = lifetimes[k]
        start = 0
        for other in placed:  # in order of their offsets
            it = lifetimes[other]
            if it.last < lifetime.first or lifetime.last < it.first:
                continue
            if offsets[other] - start >= lifetime.size:
                break
            start = max(start, _aligned(offsets[other] + it.size))
        offsets[k] = start
        placed.append(k)
        placed.sort(key=lambda p: offsets[p])
    total = max((offsets[k] + t.size for k, t in enumerate(lifetimes)), default=0)
    return tuple(offsets), total


def _aligned(offset: int) -> int:
    return (offset + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
