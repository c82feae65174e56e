"""Splits a kernel into launches: top-level statements become pieces, which are independent within a launch.

Programs of one launch cannot wait for each other. So a loop that needs another's stores goes to a later launch, and
loops that share a folded value go to one program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from keel.loops import (
    Apply,
    Axis,
    Check,
    Const,
    Index,
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

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Runs ``body`` for each point of ``axes``, in any order. Without axes it runs once."""

    axes: tuple[Axis, ...]
    body: Body


def launches(kernel: Kernel) -> tuple[tuple[Piece, ...], ...]:
    """The pieces of each launch, in order. Loops without iterations are dropped."""
    stored = frozenset(s.buffer for s in walk(kernel.body) if isinstance(s, Store))
    copied = _copied(kernel.body, stored)
    groups = _ordered(kernel.body, _groups(kernel.body, copied))
    pieces = [(p, level) for group, level in groups for p in _divided(_piece(kernel.body, group, copied), stored)]
    levels = sorted({level for _, level in groups})
    by_launch = [tuple(p for p, at in pieces if at == level and all(a.size != 0 for a in p.axes)) for level in levels]
    return tuple(launch for launch in by_launch if launch)


def reads(body: Iterable[Stmt]) -> Iterator[int]:
    """The numbers of all values that the statements read, including their own values."""
    for s in walk(tuple(body)):
        yield from operands_of(s)


def indices(body: Iterable[Stmt]) -> Iterator[Index]:
    """All indices in the statements."""
    for s in walk(tuple(body)):
        if isinstance(s, Position | Load | Store):
            yield s.index


def _copied(body: Body, stored: frozenset[str]) -> list[bool]:
    """The statements that may be recomputed anywhere, because they always have the same value."""
    return [
        isinstance(s, Const | Position | Check | Apply) or (isinstance(s, Load) and s.buffer not in stored)
        for s in body
    ]


def _groups(body: Body, copied: list[bool]) -> list[list[int]]:
    """Groups of statements that must run in one program, because they share a value that cannot be recomputed."""
    made = {r: i for i, s in enumerate(body) for r in _made(s)}
    parent = list(range(len(body)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, s in enumerate(body):
        if copied[i]:
            continue
        pending, visited = list(reads((s,))), set[int]()
        while pending:
            maker = made.get(pending.pop(), i)
            if maker in visited or maker == i:
                continue
            visited.add(maker)
            if copied[maker]:
                pending += reads((body[maker],))
            else:
                parent[root(i)] = root(maker)
    groups: dict[int, list[int]] = {}
    for i in range(len(body)):
        if not copied[i]:
            groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def _made(s: Stmt) -> set[int]:
    return {r for inner in walk((s,)) for r in results_of(inner)}


def _ordered(body: Body, groups: list[list[int]]) -> list[tuple[list[int], int]]:
    """Each group with the number of its launch. Groups that depend on each other become one."""
    while True:
        after = [
            [p is not q and any(a < b and _conflict(body[a], body[b]) for a in p for b in q) for q in groups]
            for p in groups
        ]
        n = len(groups)
        for k in range(n):
            for i in range(n):
                for j in range(n):
                    after[i][j] = after[i][j] or (i != j and after[i][k] and after[k][j])
        tied = next(((i, j) for i in range(n) for j in range(i) if after[i][j] and after[j][i]), None)
        if tied is None:
            break
        i, j = tied
        groups = [*(g for k, g in enumerate(groups) if k not in tied), sorted(groups[i] + groups[j])]
    level: dict[int, int] = {}
    for i in sorted(range(n), key=lambda i: sum(after[j][i] for j in range(n))):
        level[i] = 1 + max((level[j] for j in range(n) if after[j][i]), default=-1)
    return sorted(((g, level[i]) for i, g in enumerate(groups)), key=lambda t: (t[1], t[0]))


def _conflict(a: Stmt, b: Stmt) -> bool:
    """True if ``b`` reads elements that ``a`` stores, or stores elements that ``a`` reads or stores."""
    (a_reads, a_stores), (b_reads, b_stores) = _touched(a), _touched(b)
    if any(buffer in b_reads for buffer, _ in a_stores) or any(buffer in a_reads for buffer, _ in b_stores):
        return True
    return any(x == y and (m == "write" or m != n) for x, m in a_stores for y, n in b_stores)


def _touched(s: Stmt) -> tuple[set[str], set[tuple[str, str]]]:
    inner = list(walk((s,)))
    return {t.buffer for t in inner if isinstance(t, Load)}, {(t.buffer, t.mode) for t in inner if isinstance(t, Store)}


def _piece(body: Body, group: list[int], copied: list[bool]) -> Piece:
    made = {r: i for i, s in enumerate(body) if copied[i] for r in results_of(s)}
    needed, pending = set[int](), list(reads(body[i] for i in group))
    while pending:
        maker = made.get(pending.pop())
        if maker is not None and maker not in needed:
            needed.add(maker)
            pending += reads((body[maker],))
    lone = body[group[0]] if len(group) == 1 else None
    if isinstance(lone, Loop) and lone.kind == "parallel":
        return _flat(Piece(lone.axes, (*(body[i] for i in sorted(needed)), *lone.body)))
    return Piece((), tuple(body[i] for i in sorted({*needed, *group})))


def _divided(piece: Piece, stored: frozenset[str]) -> list[Piece]:
    """Makes separate pieces of parallel loops in ``piece`` that do not depend on the statements next to them."""
    copied, body = _copied(piece.body, stored), piece.body
    fixed = [i for i in range(len(body)) if not copied[i]]
    alone = [g[0] for g in _groups(body, copied) if len(g) == 1 and _deep(body[g[0]])]
    alone = [
        i for i in alone if not any(_conflict(body[i], body[j]) or _conflict(body[j], body[i]) for j in fixed if j != i)
    ]
    if not piece.axes or not alone:
        return [piece]
    inner = [_piece(body, [i], copied) for i in alone]
    divided = [q for p in inner for q in _divided(Piece((*piece.axes, *p.axes), p.body), stored)]
    rest = tuple(s for i, s in enumerate(body) if i not in alone)
    return [*divided, Piece(piece.axes, rest)] if any(isinstance(s, Store) for s in walk(rest)) else divided


def _deep(s: Stmt) -> bool:
    return isinstance(s, Loop) and s.kind == "parallel" and any(isinstance(t, Loop) for t in s.body)


def _flat(piece: Piece) -> Piece:
    """Merges nested parallel loops with only plain values between them into one loop, which has more programs."""
    *before, last = piece.body
    if not isinstance(last, Loop) or last.kind != "parallel":
        return piece
    stored = {s.buffer for s in walk(last.body) if isinstance(s, Store)}
    if any(isinstance(s, Loop | Store) or (isinstance(s, Load) and s.buffer in stored) for s in before):
        return piece
    return _flat(Piece((*piece.axes, *last.axes), (*before, *last.body)))
