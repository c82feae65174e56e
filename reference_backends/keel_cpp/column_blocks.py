"""Blocks of neighboring columns that run through inner loops together. Every straight-line run of statements becomes a
loop over the block's lanes. Accumulators, and values that a later run uses, are arrays with one element per lane.
Values that are equal in all columns stay scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import product

from keel.loops import Axis, Load, Loop, Position, Reduce, Scan, Stmt, Store, axes_of, operands_of, results_of, walk
from keel_cpp.accumulators import Fold
from keel_cpp.analysis import axes_used, folds_of, has_loops, is_small, unrolls, vectorizes
from keel_cpp.emitter import Text
from keel_cpp.index_text import constant_text, size_text
from keel_cpp.op_table import STORED, loaded

WIDTH = 128
"""The most columns of a block: 512 bytes of float for a row and for each accumulator."""
EXTENTS = (16, 32, WIDTH)
"""The extents of arrays with an element for each column. There are few, so that kernels of many sizes can be merged
(module ``merge_functions``).
"""
STEPS = 32
"""The number of additions in float before a partial sum is added to a double."""


@dataclass(frozen=True)
class Columns:
    """The axis of the columns, the width of a block, and the text of the number of columns in the current block."""

    axis: Axis
    width: int
    exact: bool
    count: str
    low: str

    @staticmethod
    def of(axis: Axis, name: Callable[[str], str]) -> Columns:
        text = name(axis.name)
        if not isinstance(axis.size, int):
            return Columns(axis, WIDTH, False, f"{text}_n", f"{text}_low")
        blocks = max(-(-axis.size // WIDTH), 1)
        width = 16 * -(-axis.size // (16 * blocks)) if axis.size > 16 else max(axis.size, 1)
        exact = axis.size % width == 0
        return Columns(axis, width, exact, str(width) if exact else f"{text}_n", f"{text}_low")

    @property
    def extent(self) -> str:
        """The text of the extent of an array with an element for each column."""
        return constant_text(next(n for n in EXTENTS if n >= self.width))


def columns(text: Text, body: Sequence[Stmt], shape: Columns) -> None:
    """Emits ``body`` for one block."""
    _Block(text, shape).body(body)


class _Block:
    """``arrays`` has the text, at lane l, of values in arrays. ``varying`` are the values that differ by lane."""

    def __init__(self, text: Text, shape: Columns):
        self.text, self.shape = text, shape
        self.arrays: dict[int, str] = {}
        self.varying: set[int] = set()
        self.parts: set[int] = set()

    def body(self, body: Sequence[Stmt]) -> None:
        run: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Loop) and not is_small(stmt):
                self.run(run)
                run = []
                self.loop(stmt)
            else:
                run.append(stmt)
        self.run(run)

    # -- loops ------------------------------------------------------------------------------------------------------

    def loop(self, loop: Loop) -> None:
        text = self.text
        folds = text.folds(loop)
        for fold in folds:
            text.each(fold.function(), fold.declare(self.shape.extent))
            self.varying |= set(fold.stmt.results)
        with ExitStack() as stack:
            for a in loop.axes[:-1]:
                stack.enter_context(self._over(a))
            parted = [f for f in folds if f.parted and loop.kind == "reduce" and not has_loops(loop.body)]
            if parted and loop.axes:
                self._spans(loop, parted)
            else:
                if loop.axes:
                    stack.enter_context(self._over(loop.axes[-1]))
                self.body(loop.body)
        for fold in folds:
            if isinstance(fold.stmt, Reduce):
                self.arrays |= dict(zip(fold.stmt.results, fold.results("[l]"), strict=True))

    def _over(self, axis: Axis) -> AbstractContextManager[None]:
        return self.text.loop(self.text.name(axis.name), "0", size_text(axis.size, self.text.name))

    def _spans(self, loop: Loop, parted: Sequence[Fold]) -> None:
        """Splits the innermost axis of a fold into spans of 32 steps. The partial sums are flushed after each."""
        text, axis = self.text, loop.axes[-1]
        name = text.name(axis.name)
        low, high = "0", size_text(axis.size, text.name)
        with ExitStack() as stack:
            if not (isinstance(axis.size, int) and axis.size <= STEPS):
                span = f"{name}_span"
                stack.enter_context(text.block(f"for (i64 {span} = 0; {span} < {high}; {span} += {STEPS})"))
                text.line(f"const i64 {name}_end = least({name}_span + {STEPS}, {high});")
                low, high = f"{name}_span", f"{name}_end"
            text.each(f.declare_part(self.shape.extent) for f in parted)
            self.parts |= {f.number for f in parted}
            with text.loop(name, low, high):
                self.body(loop.body)
            self.parts -= {f.number for f in parted}
            text.each(f.flush() for f in parted)

    # -- runs -------------------------------------------------------------------------------------------------------

    def run(self, stmts: Sequence[Stmt]) -> None:
        """Emits straight-line statements and small loops: first the uniform ones, then one loop over the lanes."""
        text, varying = self.text, []
        for stmt in stmts:
            if self._uniform(stmt):
                text.statement(stmt)
            else:
                varying.append(stmt)
                self.varying |= set(_results(stmt))
        if not varying:
            return
        escaping = self._escaping(varying)
        for r in escaping:
            text.line(f"{STORED[text.facts.dtypes[r]]} wide{r}[{self.shape.extent}];")
        inner = [s for s in walk(tuple(varying)) if not isinstance(s, Loop)]
        simd = vectorizes(varying, self.shape.axis, text.facts)
        head = f"for (int l = 0; l < {self.shape.count}; ++l)"
        with text.watched(varying, simd), text.lanes(head, simd=simd):
            if any(self.shape.axis in axes_of(s.index) for s in inner if isinstance(s, Position | Load | Store)):
                text.line(f"const i64 {text.name(self.shape.axis.name)} = {self.shape.low} + l;")
            for n in sorted({v for s in inner for v in operands_of(s)} & self.arrays.keys()):
                text.define(n, self.arrays[n])
            for stmt in varying:
                self._statement(stmt, simd)
                text.each(f"wide{r}[l] = v{r};" for r in _results(stmt) if r in escaping)
        self.arrays |= {r: loaded(f"wide{r}[l]", text.facts.dtypes[r]) for r in escaping}

    def _uniform(self, stmt: Stmt) -> bool:
        if isinstance(stmt, Loop | Store | Reduce | Scan):
            return False
        return (
            self.shape.axis not in axes_used(stmt, self.text.facts)
            and not self.varying & set(operands_of(stmt))
            and self.shape.axis not in self.text.facts.varies[stmt.result]
        )

    def _escaping(self, run: Sequence[Stmt]) -> list[int]:
        """The values of the run that are used outside it."""
        inside = {id(s) for s in walk(tuple(run))}
        made = [r for s in run if not isinstance(s, Reduce) for r in _results(s)]
        return [r for r in made if any(id(u) not in inside for u in self.text.facts.users.get(r, ()))]

    def _statement(self, stmt: Stmt, simd: bool) -> None:
        if not isinstance(stmt, Loop):
            part = isinstance(stmt, Reduce) and stmt.results[0] in self.parts
            return self.text.statement(stmt, at="[l]", part=part)
        folds = self.text.folds(stmt, short=True)
        for fold in folds:
            self.text.each(fold.function(), fold.declare())
        if simd or unrolls(stmt):
            self._unrolled(stmt)
        else:
            self._looped(stmt)
        self.text.results(folds)

    def _unrolled(self, loop: Loop) -> None:
        """Emits a small loop as a function that is called at each point, since an inner loop would stop the
        vectorizer.
        """
        text = self.text
        names = [text.name(a.name) for a in loop.axes]
        point = "_".join([*names, str(len(text.lines)), "point"])  # two axes may have the same name here
        with text.block(f"const auto {point} = [&]({', '.join(f'i64 {n}' for n in names)}) BODY", "};"):
            text.statements(loop.body)
        for values in product(*(range(a.size) for a in loop.axes if isinstance(a.size, int))):
            text.line(f"{point}({', '.join(map(str, values))});")

    def _looped(self, loop: Loop) -> None:
        """Emits a small loop that is not vectorized as a loop, because unrolling would compile many copies of
        its body.
        """
        with ExitStack() as stack:
            for a in loop.axes:
                stack.enter_context(self._over(a))
            self.text.statements(loop.body)


def _results(stmt: Stmt) -> tuple[int, ...]:
    """The values that a statement of a run defines. A small loop defines the results of its folds."""
    if isinstance(stmt, Loop):
        return tuple(r for f in folds_of(stmt) for r in f.results)
    return results_of(stmt)
