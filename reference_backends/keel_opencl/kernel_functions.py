"""Divides a kernel into OpenCL functions, which run in order, and their loops among work items.

The items of one launch cannot wait for those of other groups. So each outer loop becomes a function, and statements
that share a folded value become a function of one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from keel import Dim
from keel.loops import (
    Apply,
    Axis,
    Const,
    Kernel,
    Load,
    Loop,
    Position,
    Stmt,
    Store,
    operands_of,
    results_of,
    walk,
)

GROUP = 64
"""The number of items in a group."""
LONG = 4 * GROUP
"""An inner loop of this size is worth the work of a group."""


@dataclass(frozen=True)
class Function:
    """Runs ``body`` for each point of ``axes``: in one item, or, if it is ``grouped``, in one group, whose items share
    the loops directly in the body.
    """

    name: str
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    grouped: bool

    @property
    def points(self) -> Dim:
        return prod((a.size for a in self.axes), start=1)


@lru_cache(maxsize=4096)
def functions(kernel: Kernel) -> tuple[Function, ...]:
    """The functions of a kernel, in order."""
    body, stored = kernel.body, {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
    makers = {r: i for i, s in enumerate(body) for inner in walk((s,)) for r in results_of(inner)}
    needs, copied = list[set[int]](), list[bool]()
    for i, s in enumerate(body):
        direct = {makers[v] for inner in walk((s,)) for v in operands_of(inner)} - {i}
        copied.append(_is_copied(s, stored) and all(copied[j] for j in direct))
        needs.append(direct.union(*(needs[j] for j in direct if copied[j])))
    segments: list[tuple[int, int]] = []
    for i in (i for i in range(len(body)) if not copied[i]):
        first = min((j for j in needs[i] if not copied[j]), default=i)
        while segments and segments[-1][1] >= first:
            first = min(first, segments.pop()[0])
        segments.append((first, i))
    made = []
    for k, (first, last) in enumerate(segments):
        inside = [i for i in range(first, last + 1) if not copied[i]]
        before = sorted({j for i in inside for j in needs[i] if copied[j]})
        made.append(_function(f"{kernel.name}_{k}", [body[i] for i in before], [body[i] for i in inside]))
    return tuple(made)


def _is_copied(s: Stmt, stored: set[str]) -> bool:
    """True for a statement that any function may repeat, as it always has the same value."""
    return isinstance(s, Const | Position | Apply) or (isinstance(s, Load) and s.buffer not in stored)


def _function(name: str, values: list[Stmt], body: list[Stmt]) -> Function:
    match body:
        case [Loop(kind="parallel") as loop]:
            axes, inner = _flat(loop.axes, (*values, *loop.body))
            return Function(name, axes, inner, _pays(axes, inner))
    return Function(name, (), (*values, *body), True)


def _flat(axes: tuple[Axis, ...], body: tuple[Stmt, ...]) -> tuple[tuple[Axis, ...], tuple[Stmt, ...]]:
    """Parallel loops with only values between them as one loop, which has more items."""
    *values, last = body
    stored = {s.buffer for s in walk(body) if isinstance(s, Store)}
    if isinstance(last, Loop) and last.kind == "parallel" and all(_is_copied(s, stored) for s in values):
        return _flat((*axes, *last.axes), (*values, *last.body))
    return axes, body


def _pays(axes: tuple[Axis, ...], body: tuple[Stmt, ...]) -> bool:
    """True if the inner loops are long, and neighbors in memory are mostly neighbors in them, not in the outer ones."""
    loops = [s for s in body if isinstance(s, Loop) and s.kind != "scan" and s.axes]
    sizes = [prod((a.size for a in s.axes), start=1) for s in loops]
    if not any(not isinstance(size, int) or size >= LONG for size in sizes):
        return False
    accesses = [(s, loop) for loop in loops for s in walk(loop.body) if isinstance(s, Load | Store)]
    inner = sum(s.index.coefficient(loop.axes[-1]) in (1, -1) for s, loop in accesses)
    return inner > sum(s.index.coefficient(axes[-1]) in (1, -1) for s, _ in accesses)
