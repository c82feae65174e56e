"""Analysis of a kernel before it is rendered: types, dependences, strides, work, conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from keel import Dim
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
    Reduce,
    Scan,
    Stmt,
    Store,
    axes_of,
    bounds,
    loaded_of,
    non_negative,
    operands_of,
    quotient,
    results_of,
    walk,
)
from keel_cpp.index_text import is_positive
from keel_cpp.op_table import COSTS
from keel_cpp.statements import Picked

SMALL = 16
"""A loop with at most this many iterations is unrolled, and an axis with fewer elements is not vectorized."""
COPIED = 128
"""The most statements to which a loop may be unrolled. More take longer to compile than unrolling saves."""


@dataclass(frozen=True)
class Facts:
    """For each value: its dtype, the axes it varies with, and its users. ``written`` are the buffers with stores."""

    dtypes: dict[int, torch.dtype]
    varies: dict[int, frozenset[Axis]]
    users: dict[int, list[Stmt]]
    constants: dict[int, Const]
    written: frozenset[str]


def survey(kernel: Kernel) -> Facts:
    written = frozenset(s.buffer for s in walk(kernel.body) if isinstance(s, Store))
    facts = Facts({}, {}, {}, {}, written)
    _survey(kernel.body, frozenset(), facts)
    return facts


def _survey(body: tuple[Stmt, ...], around: frozenset[Axis], facts: Facts) -> None:
    for stmt in body:
        if isinstance(stmt, Loop):
            _survey(stmt.body, around | frozenset(stmt.axes), facts)
            for fold in folds_of(stmt):
                for r in fold.results:
                    facts.varies[r] -= frozenset(stmt.axes)
            continue
        for v in operands_of(stmt):
            facts.users.setdefault(v, []).append(stmt)
        if isinstance(stmt, Const):
            facts.constants[stmt.result] = stmt
        varies = around if _bound_here(stmt, facts) else axes_used(stmt, facts)
        for r, dtype in zip(results_of(stmt), dtypes_of(stmt), strict=True):
            facts.dtypes[r], facts.varies[r] = dtype, varies


def _bound_here(stmt: Stmt, facts: Facts) -> bool:
    """True if the value may change from iteration to iteration even if its operands do not."""
    return isinstance(stmt, Scan) or (isinstance(stmt, Load) and stmt.buffer in facts.written)


def axes_used(stmt: Stmt, facts: Facts) -> frozenset[Axis]:
    """The axes that the statement or its operands vary with."""
    own = axes_of(stmt.index) if isinstance(stmt, Position | Load | Store) else set()
    return frozenset(own).union(*(facts.varies[v] for v in operands_of(stmt)))


def dtypes_of(stmt: Stmt) -> tuple[torch.dtype, ...]:
    match stmt:
        case Reduce() | Scan():
            return stmt.dtypes
        case Const() | Position() | Load() | Check() | Apply():
            return (stmt.dtype,)
        case _:
            return ()


def folds_of(loop: Loop) -> list[Reduce | Scan]:
    return [s for s in loop.body if isinstance(s, Reduce | Scan)]


def checks_in(body: Sequence[Stmt]) -> list[Check]:
    return [s for s in walk(tuple(body)) if isinstance(s, Check)]


def has_loops(body: Sequence[Stmt]) -> bool:
    return any(isinstance(s, Loop) for s in body)


def innermost(body: Sequence[Stmt]) -> Iterator[Loop]:
    """The loops that contain no loop."""
    for stmt in body:
        if isinstance(stmt, Loop):
            if has_loops(stmt.body):
                yield from innermost(stmt.body)
            else:
                yield stmt


def is_small(loop: Loop) -> bool:
    """True if the loop is so short that it should always be unrolled."""
    total = 1
    for a in loop.axes:
        if not isinstance(a.size, int):
            return False
        total *= a.size
    return total <= SMALL and not has_loops(loop.body) and loop.kind != "scan"


def unrolls(loop: Loop) -> bool:
    """True if unrolling a small loop pays although it saves only the loop itself."""
    copies = iterations(loop.axes)
    return is_small(loop) and isinstance(copies, int) and copies * len(loop.body) <= COPIED


# -- strides ------------------------------------------------------------------------------------------------------

FAR = 16


def stride(stmt: Load | Store, axis: Axis, facts: Facts) -> int:
    """Returns the cost of an access if ``axis`` is divided into lanes: 0 if all lanes read the same element, 1 if they
    read neighbors, 4 if nearby elements, 16 if any.
    """
    if axis not in axes_used(stmt, facts):
        return 0
    loaded = frozenset[Axis]().union(*(facts.varies[v] for v in loaded_of(stmt.index)))
    divided = {b for atom, _ in stmt.index.terms if not isinstance(atom, Axis) for b in axes_of(Index(0, ((atom, 1),)))}
    step = stmt.index.coefficient(axis)
    if axis in loaded | divided or not isinstance(step, int) or abs(step) > 4:
        return FAR
    return 1 if step in (0, 1) else 4


def lane_cost(body: Sequence[Stmt], axis: Axis, facts: Facts) -> int:
    """The cost of the accesses of ``body`` if ``axis`` is vectorized. A store counts twice."""
    return sum(
        stride(s, axis, facts) * (2 if isinstance(s, Store) else 1)
        for s in walk(tuple(body))
        if isinstance(s, Load | Store)
    )


def vectorizes(body: Sequence[Stmt], axis: Axis, facts: Facts, *, guarded: bool = False) -> bool:
    """True if the compiler's vectorizer can be trusted with a loop over ``axis``; With ``guarded``, its loads are
    conditional.

    GCC 12 drops the permutation of guarded loads that it groups to fill stores of several elements side by side, as in
    ``out[2 * i] = m ? in[2 * i + 1] : 0; out[2 * i + 1] = m ? in[2 * i] : 0``.
    """
    if not all(is_positive(c.bound) for c in checks_in(body)):
        return False  # the worst index of an empty dimension cannot be tracked
    inner = [s for s in walk(tuple(body)) if isinstance(s, Load | Store)]
    guarded = guarded or any(s.mask is not None for s in inner)
    grouped = any(isinstance(s, Store) and stride(s, axis, facts) > 1 for s in inner)
    return not (guarded and grouped)


def is_long(axis: Axis) -> bool:
    return not isinstance(axis.size, int) or axis.size >= SMALL // 2


def for_lanes(axes: Sequence[Axis], body: Sequence[Stmt], facts: Facts) -> Axis | None:
    """The axis of a nest that is best vectorized: a long one with cheap accesses, far inside. None without axes."""
    ranked = sorted(enumerate(axes), key=lambda k: (not is_long(k[1]), lane_cost(body, k[1], facts), -k[0]))
    return ranked[0][1] if ranked else None


def across(loop: Loop, facts: Facts) -> Axis | None:
    """The axis of a parallel loop to vectorize around its inner loops; None if vectorizing the inner loops is
    better.
    """
    inner = list(innermost(loop.body))
    axis = for_lanes(loop.axes, [s for i in inner for s in i.body], facts)
    if axis is None or not is_long(axis):
        return None
    picked = [s for i in inner for s in i.body if isinstance(s, Picked)]
    if any(axis in facts.varies[v] for s in picked for v in s.chosen):
        return None  # each lane would read from a separate address
    outside = sum(lane_cost(i.body, axis, facts) for i in inner)
    inside = sum(lane_cost(i.body, a, facts) for i in inner if (a := for_lanes(i.axes, i.body, facts)) is not None)
    near = any(0 < stride(s, axis, facts) < FAR for i in inner for s in i.body if isinstance(s, Load | Store))
    return axis if outside < inside or (all(map(is_small, inner)) and near) else None


def tiled(axes: Sequence[Axis], lane: Axis, body: Sequence[Stmt], facts: Facts) -> Axis | None:
    """The axis along which accesses with a large stride along ``lane`` are contiguous. Small tiles of both axes use
    each cache line completely.
    """
    far = [s for s in body if isinstance(s, Load | Store) and stride(s, lane, facts) == FAR]
    return next((a for a in axes if a != lane and is_long(a) and any(stride(s, a, facts) == 1 for s in far)), None)


def turned(body: Sequence[Stmt], lane: Axis, side: Axis, facts: Facts) -> list[Load]:
    """The loads that are contiguous along ``side`` and have a constant stride along ``lane``, so that a tile can be
    transposed. Elements must have the width of an integer type.
    """
    strided = [s for s in body if type(s) is Load and stride(s, lane, facts) == FAR and stride(s, side, facts) == 1]
    return [
        s
        for s in strided
        if s.mask is None
        and s.buffer not in facts.written
        and s.dtype.itemsize in (2, 4, 8)
        and _plain(s.index, lane, facts)
    ]


def _plain(i: Index, axis: Axis, facts: Facts) -> bool:
    """True if the index is a constant times ``axis`` plus terms without it."""
    inside = {b for atom, _ in i.terms if not isinstance(atom, Axis) for b in axes_of(Index(0, ((atom, 1),)))}
    return axis not in inside.union(*(facts.varies[v] for v in loaded_of(i)))


# -- levels -------------------------------------------------------------------------------------------------------


def levels(body: Sequence[Stmt], axes: Sequence[Axis], facts: Facts) -> list[list[Stmt]]:
    """Hoists the statements of a nest: level k has those that vary only with axes[:k]. Stores and folds stay innermost,
    and no load is hoisted out of a loop that may be empty.
    """
    out: list[list[Stmt]] = [[] for _ in range(len(axes) + 1)]
    depth: dict[int, int] = {}
    sure = max((k + 1 for k, a in enumerate(axes) if not is_positive(a.size)), default=0)
    for stmt in body:
        varies = axes_used(stmt, facts).union(*(facts.varies[r] for r in results_of(stmt)))
        k = max((n + 1 for n, a in enumerate(axes) if a in varies), default=0)
        k = max([k, *(depth.get(v, 0) for v in operands_of(stmt))])
        if isinstance(stmt, Load):
            k = max(k, sure)
        elif isinstance(stmt, Store | Reduce | Scan):
            k = len(axes)
        depth |= dict.fromkeys(results_of(stmt), k)
        out[k].append(stmt)
    return out


# -- work ---------------------------------------------------------------------------------------------------------


def work(body: Sequence[Stmt]) -> Dim:
    """An estimate of the scalar operations of one run of ``body``."""
    total: Dim = 0
    for stmt in body:
        match stmt:
            case Loop():
                total += iterations(stmt.axes) * work(stmt.body)
            case Apply():
                total += COSTS.get(stmt.op, 1)
            case Load() | Check() | Store():
                total += 1
            case Reduce() | Scan():
                total += 1 if len(stmt.args) == 1 else 12
            case _:
                pass
    return total


def iterations(axes: Sequence[Axis]) -> Dim:
    total: Dim = 1
    for a in axes:
        total *= a.size
    return total


# -- conflicts ------------------------------------------------------------------------------------------------------


def in_order(loop: Loop) -> tuple[Axis, ...]:
    """The axes of a loop along which several stores may write one element, so that their order matters."""
    met = [s for s in walk(loop.body) if isinstance(s, Store) and (s.mode != "write" or loaded_of(s.index))]
    return tuple(a for a in loop.axes if not all(_is_injective(s.index, a) for s in met))


def _is_injective(i: Index, axis: Axis) -> bool:
    """True if different values of ``axis`` always give different indices: the axis is a digit of the index."""
    step = i.coefficient(axis)
    if axis.size == 0:
        return True
    if not is_positive(step):
        return False
    low, span = Index(), step * axis.size
    for atom, c in i.terms:
        if atom == axis or quotient(c, span) is not None:
            continue
        low = low + Index(0, ((atom, c),))
    ends = bounds(low)
    return ends is not None and non_negative(ends[0]) and non_negative(step - 1 - ends[1]) and axis not in axes_of(low)
