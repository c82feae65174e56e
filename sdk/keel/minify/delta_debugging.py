"""Delta debugging: smaller inputs of a test that fails, as long as it fails.

``ddmin`` is that of Zeller and Hildebrandt (Simplifying and isolating failure-inducing input, 2002).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

T = TypeVar("T")
C = TypeVar("C")
SECONDS = 60.0


@dataclass
class Deadline:
    """When to stop looking for something smaller."""

    seconds: float = SECONDS

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.seconds

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool], deadline: Deadline) -> list[T]:
    """A part of ``items``, in order, that fails and of which, unless time runs out, no single one can be left out."""
    result, parts = list(items), 2
    while len(result) >= 2 and not deadline.over:
        size = -(-len(result) // parts)
        for k in range(0, len(result), size):
            rest = result[:k] + result[k + size :]
            if not deadline.over and fails(rest):
                result, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(result))
    if len(result) == 1 and not deadline.over and fails([]):
        return []
    return result


def greedy_descent(start: C, smaller: Callable[[C], Iterator[C]], fails: Callable[[C], bool], deadline: Deadline) -> C:
    """Takes the first smaller candidate that fails, again and again, until none does or time runs out."""
    result, moved = start, True
    while moved:
        moved = False
        for candidate in smaller(result):
            if deadline.over:
                return result
            if fails(candidate):
                result, moved = candidate, True
                break
    return result


def cuts(n: int) -> Iterator[tuple[int, int]]:
    """Where a part of ``n`` begins and how long it is, the smallest first."""
    visited: set[tuple[int, int]] = set()
    half, most = n // 2, 3 * n // 4
    for start, length in (
        (0, 1),
        (n - 1, 1),
        (0, half),
        (n - half, half),
        (0, most),
        (n - most, most),
        (0, n - 1),
        (1, n - 1),
    ):
        if 0 < length < n and (start, length) not in visited:
            visited.add((start, length))
            yield start, length


def cut_where(x: Tensor, n: int, start: int, length: int) -> Tensor:
    """``x`` with each dimension of size ``n`` narrowed."""
    for dim, size in enumerate(x.shape):
        if size == n:
            x = x.narrow(dim, start, length)
    return x
