"""Reduction splitting: a reduction with too few independent results becomes partial reductions that fill the machine,
and one that combines them.

Monoids are associative, and the state of a reduction is also its operand, so partial states are reduced again. A chunk
that is not full is padded with the identity: its loads are masked and its masked values are replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import torch

from keel.loops.index import Axis, Index, flatten, index, quotient, substitute
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
from keel.types import Dim, contiguous_strides, product

Hint = Callable[[Dim], int]
ENOUGH = 4096
"""Iterations below which a reduction is not worth a second kernel."""


@dataclass(frozen=True)
class SplitKernels:
    """``first`` writes the partial states to new buffers of ``partials`` elements; ``second`` reduces them and does the
    rest."""

    first: Kernel
    second: Kernel
    partials: tuple[Buffer, ...]


@dataclass(frozen=True)
class _Shape:
    """A kernel that can be split: straight-line statements, one reduction (in rows, or at the top), straight-line
    statements and stores."""

    rows: Loop | None
    before: tuple[Stmt, ...]
    fold: Loop
    after: tuple[Stmt, ...]


def split_reduction(kernel: Kernel, limits: Limits, hint: Hint) -> SplitKernels | None:
    """Splits ``kernel`` into two for a machine with ``limits.parallel`` lanes. Returns None if it stays whole."""
    shape = _shape(kernel)
    if shape is None:
        return None
    rows = 1 if shape.rows is None else hint(product(a.size for a in shape.rows.axes))
    axis = shape.fold.axes[0]
    target = limits.parallel // max(rows, 1)
    if target < 2 or hint(product(a.size for a in shape.fold.axes)) < ENOUGH:
        return None
    chunks = _chunks(axis.size, target, hint)
    nested = any(isinstance(s, Loop) for s in shape.fold.body)
    if chunks is None or (nested and quotient(axis.size, chunks) is None):
        return None
    return _Split(kernel, shape, axis, chunks).halves()


def _shape(kernel: Kernel) -> _Shape | None:
    top = _around(kernel.body)
    if top is None:
        return None
    before, loop, after = top
    if loop.kind == "reduce":
        return _Shape(None, before, loop, after)
    inner = _around(loop.body) if loop.kind == "parallel" and not after else None
    if inner is None or inner[1].kind != "reduce":
        return None
    return _Shape(loop, (*before, *inner[0]), inner[1], inner[2])


def _around(body: Sequence[Stmt]) -> tuple[tuple[Stmt, ...], Loop, tuple[Stmt, ...]] | None:
    loops = [k for k, s in enumerate(body) if isinstance(s, Loop)]
    if len(loops) != 1:
        return None
    (k,) = loops
    loop = body[k]
    assert isinstance(loop, Loop)
    return tuple(body[:k]), loop, tuple(body[k + 1 :])


def _chunks(size: Dim, target: int, hint: Hint) -> int | None:
    """Returns the number of chunks of an axis: the largest divisor in [target / 2, target], else ``target``."""
    longest = hint(size) // 2
    target = min(target, longest)
    if target < 2:
        return None
    exact = [c for c in range(target, target // 2, -1) if quotient(size, c) is not None]
    return exact[0] if exact else target


class _Split:
    def __init__(self, kernel: Kernel, shape: _Shape, axis: Axis, chunks: int):
        self.kernel, self.shape, self.axis = kernel, shape, axis
        self.chunk = Axis("chunk", chunks)
        length = quotient(axis.size, chunks)
        self.exact = length is not None
        self.within = Axis("within", length if length is not None else (axis.size + chunks - 1) // chunks)
        self.fresh = count(1 + max((r for s in walk(kernel.body) for r in results_of(s)), default=0))
        self.folds = [s for s in shape.fold.body if isinstance(s, Reduce)]

    def halves(self) -> SplitKernels:
        rows = self.shape.rows.axes if self.shape.rows else ()
        shape = (self.chunk.size, *(a.size for a in rows))
        at = flatten([index(self.chunk), *map(index, rows)], contiguous_strides(shape))
        states = [(r, d) for f in self.folds for r, d in zip(f.results, f.dtypes, strict=True)]
        partials = tuple(Buffer(f"partial{k}", d, product(shape), "out") for k, (_, d) in enumerate(states))
        stores = tuple(Store(p.name, at, r) for p, (r, _) in zip(partials, states, strict=True))
        fold = Loop("reduce", (self.within, *self.shape.fold.axes[1:]), self._cut())
        first = (*(s for s in self.shape.before if not isinstance(s, Store)), fold, *stores)
        body: tuple[Stmt, ...] = (Loop("parallel", (self.chunk, *rows), first),)
        return SplitKernels(self._kernel(body, partials), self._second(partials, at, rows), partials)

    def _second(self, partials: Sequence[Buffer], at: Index, rows: Sequence[Axis]) -> Kernel:
        """Reduces the partial states along the chunks, then continues as the kernel did."""
        body: list[Stmt] = []
        names = iter(partials)
        for fold in self.folds:
            loaded = [Load(next(self.fresh), (p := next(names)).name, at, p.dtype) for _ in fold.results]
            body += [*loaded, replace(fold, args=tuple(v.result for v in loaded))]
        fold_again = Loop("reduce", (self.chunk,), tuple(body))
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
        """Returns the reduction's body with its first axis at chunk * length + within, masked beyond the end."""
        position = index(self.chunk) * self.within.size + self.within
        body = _moved(self.shape.fold.body, {self.axis: position})
        return body if self.exact else self._masked(body, position)

    def _masked(self, body: tuple[Stmt, ...], position: Index) -> tuple[Stmt, ...]:
        here, end, inside = next(self.fresh), next(self.fresh), next(self.fresh)
        out: list[Stmt] = [
            Position(here, position),
            Position(end, Index(self.axis.size)),
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


def _moved(body: tuple[Stmt, ...], values: dict[Axis, Index]) -> tuple[Stmt, ...]:
    def one(stmt: Stmt) -> Stmt:
        match stmt:
            case Load() | Store() | Position():
                return replace(stmt, index=substitute(stmt.index, values))
            case Loop():
                return replace(stmt, body=_moved(stmt.body, values))
            case _:
                return stmt

    return tuple(map(one, body))


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
