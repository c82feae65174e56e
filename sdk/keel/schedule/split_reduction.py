"""Reduction splitting: a reduction with too few independent results becomes partial reductions that fill the machine,
and one that combines them.

Monoids are associative, and the state of a reduction is also its operand, so partial states are reduced again. A chunk
that is not full is padded with the identity: its loads are masked and its masked values are replaced.

Of several reductions, one after the other, the first long one is split.  Short ones before it are done again for each
chunk.  The second kernel can be split in turn: the mean and the variance of channels are three kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import isqrt

import torch

from keel.loops.index import Axis, Index, flatten, index, quotient
from keel.loops.ir import (
    Apply,
    Buffer,
    Check,
    Const,
    Kernel,
    Load,
    Loop,
    Position,
    Reduce,
    Stmt,
    Store,
    operands_of,
    results_of,
    walk,
)
from keel.loops.monoids import MONOIDS
from keel.plugin import Limits
from keel.schedule.loop_order import rewrite
from keel.types import Dim, as_dim, contiguous_strides, product

Hint = Callable[[Dim], int]
ENOUGH = 4096
"""Iterations below which a reduction is not worth a second kernel."""


@dataclass(frozen=True)
class SplitKernels:
    """``first`` writes the partial states to new buffers of ``partials`` elements; ``second`` reduces them and does the
    rest.
    """

    first: Kernel
    second: Kernel
    partials: tuple[Buffer, ...]


@dataclass(frozen=True)
class _Shape:
    """A kernel that can be split: statements, a long reduction (in rows, or at the top), and what comes after it.

    Loops in ``before`` are short reductions that store nothing.
    """

    rows: Loop | None
    before: tuple[Stmt, ...]
    fold: Loop
    after: tuple[Stmt, ...]


def split_reduction(kernel: Kernel, limits: Limits, hint: Hint) -> SplitKernels | None:
    """Splits ``kernel``, which has canonical names, into two for a machine with ``limits.parallel`` lanes.

    Returns None if it stays whole.
    """
    shape = _shape(kernel, hint)
    if shape is None:
        return None
    length = _length(shape.fold, hint)
    earlier = sum(_length(s, hint) for s in shape.before if isinstance(s, Loop))
    target = limits.parallel // max(_independent(kernel, shape, limits, hint), 1)
    chunks = _chunks(shape.fold.axes, min(target, 2 * isqrt(length), 2 * length // max(earlier, 1)), hint)
    if chunks is None:
        return None
    if any(isinstance(s, Loop) for s in shape.fold.body) and not chunks.exact:
        return None
    return _Split(kernel, shape, chunks).halves()


def _shape(kernel: Kernel, hint: Hint) -> _Shape | None:
    top = _around(kernel.body, hint)
    if top is not None:
        return _Shape(None, *top)
    loops = [k for k, s in enumerate(kernel.body) if isinstance(s, Loop)]
    if len(loops) != 1:
        return None
    (k,) = loops
    rows = kernel.body[k]
    assert isinstance(rows, Loop)
    inner = _around(rows.body, hint) if rows.kind == "parallel" and not kernel.body[k + 1 :] else None
    return None if inner is None else _Shape(rows, (*kernel.body[:k], *inner[0]), *inner[1:])


def _around(body: Sequence[Stmt], hint: Hint) -> tuple[tuple[Stmt, ...], Loop, tuple[Stmt, ...]] | None:
    """Returns the first long reduction of a block, what is before it and what is after it."""
    for k, loop in enumerate(body):
        if isinstance(loop, Loop):
            if loop.kind != "reduce":
                return None
            if _length(loop, hint) >= ENOUGH:
                return tuple(body[:k]), loop, tuple(body[k + 1 :])
            if any(isinstance(s, Store) for s in walk(loop.body)):
                return None
    return None


def _length(loop: Loop, hint: Hint) -> int:
    return hint(product(a.size for a in loop.axes))


def _independent(kernel: Kernel, shape: _Shape, limits: Limits, hint: Hint) -> int:
    """Returns how many results the machine can work on at a time: blocks of ``limits.columns`` where the results are
    neighbors in the largest buffer that the reduction reads, and not what is reduced.
    """
    if shape.rows is None:
        return 1
    rows = _length(shape.rows, hint)
    sizes = {b.name: hint(b.size) for b in kernel.buffers}
    loads = [s for s in walk(shape.fold.body) if isinstance(s, Load)]
    largest = max(loads, key=lambda s: sizes[s.buffer], default=None)
    if largest is None or all(largest.index.coefficient(a) not in (1, -1) for a in shape.rows.axes):
        return rows
    return rows // limits.columns


@dataclass(frozen=True)
class _Chunks:
    """How the axes of a reduction are cut: ``leading`` as they are, then ``cut`` into ``chunk`` times ``within``."""

    leading: tuple[Axis, ...]
    cut: Axis
    chunk: Axis
    within: Axis

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.leading, self.chunk)

    @property
    def exact(self) -> bool:
        return as_dim(self.chunk.size * self.within.size) == self.cut.size


def _chunks(axes: Sequence[Axis], target: int, hint: Hint) -> _Chunks | None:
    """Cuts a reduction into at most ``target`` chunks: along its first axes, and the last of these into the largest
    divisor in [target / 2, target], else into ``target``.
    """
    leading: list[Axis] = []
    for axis in axes:
        size = hint(axis.size)
        if size > target // 2 or axis is axes[-1]:
            break
        leading.append(axis)
        target //= max(size, 1)
    target = min(target, size // 2)
    if target < 2:
        return None
    lengths = ((c, quotient(axis.size, c)) for c in range(target, target // 2, -1))
    chunk, length = next(((c, n) for c, n in lengths if n is not None), (target, (axis.size + target - 1) // target))
    return _Chunks(tuple(leading), axis, Axis("chunk", chunk), Axis("within", length))


class _Split:
    def __init__(self, kernel: Kernel, shape: _Shape, chunks: _Chunks):
        self.kernel, self.shape, self.chunks = kernel, shape, chunks
        self.fresh = count(1 + max((r for s in walk(kernel.body) for r in results_of(s)), default=0))
        self.folds = [s for s in shape.fold.body if isinstance(s, Reduce)]

    def halves(self) -> SplitKernels:
        rows = self.shape.rows.axes if self.shape.rows else ()
        cut = (*self.chunks.axes, *rows)
        shape = tuple(a.size for a in cut)
        at = flatten([*map(index, cut)], contiguous_strides(shape))
        states = [(r, d) for f in self.folds for r, d in zip(f.results, f.dtypes, strict=True)]
        partials = tuple(Buffer(f"partial{k}", d, product(shape), "out") for k, (_, d) in enumerate(states))
        stores = tuple(Store(p.name, at, r) for p, (r, _) in zip(partials, states, strict=True))
        inner = self.shape.fold.axes[len(self.chunks.axes) :]
        fold = Loop("reduce", (self.chunks.within, *inner), self._cut())
        first = (*(s for s in self.shape.before if not isinstance(s, Store)), fold, *stores)
        body: tuple[Stmt, ...] = (Loop("parallel", cut, first),)
        return SplitKernels(self._kernel(body, partials), self._second(partials, at), partials)

    def _second(self, partials: Sequence[Buffer], at: Index) -> Kernel:
        """Reduces the partial states along the chunks, then continues as the kernel did."""
        body: list[Stmt] = []
        names = iter(partials)
        for fold in self.folds:
            loaded = [Load(next(self.fresh), (p := next(names)).name, at, p.dtype) for _ in fold.results]
            body += [*loaded, replace(fold, args=tuple(v.result for v in loaded))]
        fold_again = Loop("reduce", self.chunks.axes, tuple(body))
        second_body: tuple[Stmt, ...] = (*self.shape.before, fold_again, *self.shape.after)
        if self.shape.rows is not None:
            second_body = (replace(self.shape.rows, body=second_body),)
        return self._kernel(second_body, [replace(p, role="in") for p in partials])

    def _kernel(self, body: tuple[Stmt, ...], more: Sequence[Buffer]) -> Kernel:
        body = live(body)
        used = {s.buffer for s in walk(body) if isinstance(s, Load | Store | Check)}
        return Kernel("half", (*(b for b in self.kernel.buffers if b.name in used), *more), body)

    # -- cutting the axis ------------------------------------------------------------------------------

    def _cut(self) -> tuple[Stmt, ...]:
        """Returns the reduction's body with the axis that is cut at chunk * length + within, masked beyond the end."""
        chunks = self.chunks
        position = index(chunks.chunk) * chunks.within.size + chunks.within
        body = rewrite(self.shape.fold.body, {chunks.cut: position})
        return body if chunks.exact else self._masked(body, position)

    def _masked(self, body: tuple[Stmt, ...], position: Index) -> tuple[Stmt, ...]:
        here, end, inside = next(self.fresh), next(self.fresh), next(self.fresh)
        out: list[Stmt] = [
            Position(here, position),
            Position(end, Index(self.chunks.cut.size)),
            Apply(inside, "lt", (here, end), torch.bool),
        ]
        for stmt in body:
            match stmt:
                case Load() | Check() | Store():
                    out.append(replace(stmt, mask=self._both(out, stmt.mask, inside)))
                case Reduce():
                    out.append(replace(stmt, args=self._padded(out, stmt, inside)))
                case _:
                    out.append(stmt)
        return tuple(out)

    def _both(self, out: list[Stmt], mask: int | None, inside: int) -> int:
        if mask is None:
            return inside
        out.append(Apply(next(self.fresh), "and", (mask, inside), torch.bool))
        return results_of(out[-1])[0]

    def _padded(self, out: list[Stmt], fold: Reduce, inside: int) -> tuple[int, ...]:
        args: list[int] = []
        for arg, dtype, unit in zip(fold.args, fold.dtypes, MONOIDS[fold.monoid].identity(fold.dtypes), strict=True):
            neutral, value = next(self.fresh), next(self.fresh)
            out += [Const(neutral, unit, dtype), Apply(value, "where", (inside, arg, neutral), dtype)]
            args.append(value)
        return tuple(args)


def live(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Returns the statements without unused ones; a check is kept for its record."""
    used: set[int] = set()

    def sweep(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        live_stmts: list[Stmt] = []
        for stmt in reversed(stmts):
            if isinstance(stmt, Loop):
                inner = sweep(stmt.body)
                if inner:
                    live_stmts.append(replace(stmt, body=inner))
                continue
            if not isinstance(stmt, Store | Check) and not used & set(results_of(stmt)):
                continue
            used.update(operands_of(stmt))
            live_stmts.append(stmt)
        return tuple(reversed(live_stmts))

    return sweep(body)
