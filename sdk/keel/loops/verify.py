"""Verifies the rules of the loop IR. A kernel that breaks one raises KeelError[bad-graph] with the statement printed.

A verified kernel can be rendered, built and interpreted without further checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import sympy
import torch

from keel.errors import KeelError
from keel.loops.index import Axis, Index, axes_of, bounds, loaded_of
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
    Scan,
    Stmt,
    Store,
    line_of,
    record_dtypes,
    results_of,
    walk,
)
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS, Domain
from keel.loops.symbolic_sizes import is_positive, non_negative
from keel.types import DTYPE_NAMES, Dim

FLOATS = frozenset((torch.float32, torch.float64))
INTS = frozenset(
    (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
)
BOOL = frozenset((torch.bool,))
DOMAINS: Mapping[Domain, frozenset[torch.dtype]] = {
    "float": FLOATS,
    "int": INTS,
    "number": FLOATS | INTS,
    "bool": BOOL,
    "integral": INTS | BOOL,
    "any": FLOATS | INTS | BOOL,
}
COMPLEX = frozenset((torch.complex64, torch.complex128))
"""Dtypes that may only be loaded, selected by ``where`` and stored. Their only constant is 0."""
CASTS = frozenset(d for d in DTYPE_NAMES if not d.is_complex)
"""Dtypes that casts accept and return. Narrow floats may only be loaded, cast and stored."""
HELD = CASTS | COMPLEX
"""Dtypes of buffers."""


def verify(kernel: Kernel) -> None:
    """Raises KeelError[bad-graph] with the first broken rule and the statement that breaks it."""
    if not kernel.name.isidentifier():
        raise _broken(kernel, f"a kernel cannot be named {kernel.name!r}.")
    _buffers(kernel)
    _symbols(kernel)
    for stmt in kernel.body:
        if isinstance(stmt, Scan | Reduce):
            raise _broken(kernel, f"{_line(kernel, stmt)!r} is not in a loop.")
    state = _State(kernel, {b.name: b for b in kernel.buffers}, frozenset(kernel.symbols))
    state.block(kernel.body, (), None)


def _broken(kernel: Kernel, what: str) -> KeelError:
    return KeelError("bad-graph", f"Kernel {kernel.name}: {what}")


def _line(kernel: Kernel, stmt: Stmt) -> str:
    return line_of(stmt, {b.name: b for b in kernel.buffers}, {})


def _buffers(kernel: Kernel) -> None:
    for name, times in Counter((*(b.name for b in kernel.buffers), *kernel.symbols)).items():
        if times > 1:
            raise _broken(kernel, f"the name {name} stands for two parameters.")
    for b in kernel.buffers:
        if not b.name.isidentifier():
            raise _broken(kernel, f"a buffer cannot be named {b.name!r}.")
        if b.dtype not in HELD:
            raise _broken(kernel, f"{b.name} cannot hold {b.dtype}.")
        if isinstance(b.size, int) and b.size < 0:
            raise _broken(kernel, f"{b.name} has the size {b.size}.")
    written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store | Check)}
    if idle := [b.name for b in kernel.buffers if b.role != "in" and b.name not in written]:
        raise _broken(kernel, f"nothing is stored to {', '.join(idle)}.")


def _symbols(kernel: Kernel) -> None:
    symbols = {s for d in kernel.sizes if isinstance(d, sympy.Expr) for s in d.free_symbols}
    for name, times in Counter(s.name for s in symbols).items():
        if times > 1:
            raise _broken(kernel, f"two symbols of different assumptions are named {name}.")
        if not name.isidentifier() or name in ("max", "min"):
            raise _broken(kernel, f"a symbol cannot be named {name!r}.")


@dataclass
class _State:
    """The values that are visible at the statement that is being verified."""

    kernel: Kernel
    buffers: Mapping[str, Buffer]
    symbols: frozenset[str]
    visible: dict[int, torch.dtype] = field(default_factory=dict)
    assigned: set[int] = field(default_factory=set)
    stmt: Stmt | None = None

    def fail(self, why: str) -> NoReturn:
        assert self.stmt is not None
        raise _broken(self.kernel, f"{line_of(self.stmt, self.buffers, self.visible)!r}: {why}")

    def block(self, body: tuple[Stmt, ...], axes: tuple[Axis, ...], loop: Loop | None) -> dict[int, torch.dtype]:
        """Checks ``body`` and returns the results of its Reduce statements, which are visible after the loop."""
        outside = len(self.visible)
        folded: dict[int, torch.dtype] = {}
        for stmt in body:
            self.stmt = stmt
            self.once(stmt)
            if isinstance(stmt, Loop):
                self.loop(stmt, axes)
            else:
                self.statement(stmt, axes, loop)
            if isinstance(stmt, Reduce):
                folded |= zip(stmt.results, stmt.dtypes, strict=True)
            else:
                record_dtypes(stmt, self.visible)
        while len(self.visible) > outside:  # the newest values leave scope first, and numbers are unique
            self.visible.popitem()
        return folded

    def once(self, stmt: Stmt) -> None:
        for result in results_of(stmt):
            if result in self.assigned:
                self.fail(f"%{result} is assigned twice.")
            self.assigned.add(result)

    def loop(self, loop: Loop, axes: tuple[Axis, ...]) -> None:
        names = [a.name for a in (*axes, *loop.axes)]
        if twice := [n for n, times in Counter(names).items() if times > 1]:
            self.fail(f"the axis {twice[0]} is already in use here.")
        for a in loop.axes:
            if not a.name.isidentifier() or a.name in self.symbols or a.name in ("max", "min"):
                self.fail(f"an axis cannot be named {a.name!r}.")
            if isinstance(a.size, int) and a.size < 0:
                self.fail(f"the axis {a.name} has the size {a.size}.")
        if not loop.body:
            self.fail("the loop is empty.")
        if loop.kind == "scan" and len(loop.axes) != 1:
            self.fail("a scan runs along one axis.")
        if loop.kind == "reduce" and not loop.axes:
            self.fail("a reduce loop runs along an axis.")
        if loop.kind == "reduce" and not any(isinstance(s, Reduce) for s in loop.body):
            self.fail("the body of a reduce loop has no Reduce.")
        folded = self.block(loop.body, (*axes, *loop.axes), loop)
        self.visible |= folded

    def statement(self, stmt: Stmt, axes: tuple[Axis, ...], loop: Loop | None) -> None:
        match stmt:
            case Const():
                self.constant(stmt)
            case Position():
                self.index(stmt.index, axes)
            case Load():
                self.access(stmt, axes, "out")
                if stmt.dtype != self.buffers[stmt.buffer].dtype:
                    self.fail(f"{stmt.buffer} holds {DTYPE_NAMES[self.buffers[stmt.buffer].dtype]}.")
            case Store():
                self.access(stmt, axes, "in")
                self.store(stmt)
            case Check():
                self.check(stmt)
            case Apply():
                self.apply(stmt)
            case Reduce() | Scan():
                word = "reduce" if isinstance(stmt, Reduce) else "scan"
                if loop is None or loop.kind != word:
                    self.fail(f"it is not directly in a {word} loop.")
                self.fold(stmt)
            case Loop():
                pass

    def constant(self, stmt: Const) -> None:
        if stmt.dtype not in DOMAINS["any"] | COMPLEX:
            self.fail(f"a constant cannot be {DTYPE_NAMES.get(stmt.dtype, stmt.dtype)}; cast one.")
        match stmt.value:
            case bool():
                fits = stmt.dtype == torch.bool
            case int():
                fits = (
                    stmt.dtype in FLOATS
                    or (stmt.dtype in COMPLEX and stmt.value == 0)
                    or (stmt.dtype in INTS and torch.iinfo(stmt.dtype).min <= stmt.value <= torch.iinfo(stmt.dtype).max)
                )
            case float():
                fits = stmt.dtype in FLOATS
        if not fits:
            self.fail(f"{stmt.value!r} is not of type {DTYPE_NAMES[stmt.dtype]}.")

    def value(self, number: int) -> torch.dtype:
        if number not in self.visible:
            self.fail(f"%{number} is not visible here.")
        return self.visible[number]

    def index(self, i: Index, axes: tuple[Axis, ...]) -> None:
        if strange := axes_of(i) - set(axes):
            self.fail(f"the axis {min(str(a) for a in strange)} is not in scope.")
        for number in loaded_of(i):
            if self.value(number) not in INTS:
                self.fail(f"%{number} is an index but {DTYPE_NAMES[self.value(number)]}.")

    def access(self, stmt: Load | Store, axes: tuple[Axis, ...], never: str) -> None:
        if stmt.buffer not in self.buffers:
            self.fail(f"there is no buffer {stmt.buffer}.")
        buffer = self.buffers[stmt.buffer]
        if buffer.role == never:
            self.fail(f"{stmt.buffer} is an {never} buffer.")
        self.index(stmt.index, axes)
        if stmt.mask is not None and self.value(stmt.mask) != torch.bool:
            self.fail(f"the mask %{stmt.mask} is not bool.")
        if stmt.mask is None:
            self.within(stmt.index, buffer.size, axes)

    def within(self, i: Index, size: Dim, axes: tuple[Axis, ...]) -> None:
        """Rejects an index that certainly leaves the buffer. A sum of distinct axes reaches its bounds, unless one of
        the loops may have no iterations.
        """
        interval = bounds(i)
        if (
            interval is None
            or not all(isinstance(a, Axis) for a, _ in i.terms)
            or not all(is_positive(a.size) for a in axes)
        ):
            return
        if is_positive(-interval[0]):
            self.fail(f"the index goes down to {interval[0]}.")
        if non_negative(interval[1] - size):
            self.fail(f"the index goes up to {interval[1]}, in a buffer of {size}.")

    def store(self, stmt: Store) -> None:
        held, stored = self.buffers[stmt.buffer].dtype, self.value(stmt.value)
        if held != stored:
            self.fail(f"{stmt.buffer} holds {DTYPE_NAMES[held]}, %{stmt.value} is {DTYPE_NAMES[stored]}.")
        narrow = held.is_floating_point and held.itemsize == 1
        if stmt.mode != "write" and (held in BOOL | COMPLEX or narrow):
            self.fail(f"there is no {stmt.mode} of {DTYPE_NAMES[held]}.")

    def check(self, stmt: Check) -> None:
        if self.value(stmt.value) != torch.int64:
            self.fail(f"%{stmt.value} is not of type i64.")
        if stmt.mask is not None and self.value(stmt.mask) != torch.bool:
            self.fail(f"the mask %{stmt.mask} is not bool.")
        buffer = self.buffers.get(stmt.buffer)
        if buffer is None or buffer.role != "inout" or buffer.dtype != torch.int64:
            self.fail(f"{stmt.buffer} is not an inout buffer of i64.")
        if isinstance(buffer.size, int) and stmt.site >= buffer.size:
            self.fail(f"{stmt.buffer} has {buffer.size} sites.")

    def apply(self, stmt: Apply) -> None:
        row = SCALARS.get(stmt.op)
        if row is None:
            self.fail(f"there is no scalar op {stmt.op}.")
        if len(stmt.args) != row.arity:
            self.fail(f"{stmt.op} takes {row.arity} values, not {len(stmt.args)}.")
        dtypes = [self.value(a) for a in stmt.args]
        if stmt.op in ("cast", "bitcast"):
            return self.converts(stmt, dtypes[0])
        if stmt.op == "where" and dtypes.pop(0) != torch.bool:
            self.fail(f"%{stmt.args[0]} is not bool.")
        if len(set(dtypes)) > 1:
            self.fail(f"the operands are {' and '.join(DTYPE_NAMES[d] for d in dtypes)}.")
        if dtypes[0] not in DOMAINS[row.domain] and not (stmt.op == "where" and dtypes[0] in COMPLEX):
            self.fail(f"{stmt.op} does not take {DTYPE_NAMES[dtypes[0]]}.")
        want = torch.bool if row.result == "bool" else dtypes[0]
        if stmt.dtype != want:
            self.fail(f"{stmt.op} gives {DTYPE_NAMES[want]}, not {DTYPE_NAMES[stmt.dtype]}.")

    def converts(self, stmt: Apply, source: torch.dtype) -> None:
        for dtype, word in ((stmt.dtype, "to"), (source, "of")):
            if dtype not in CASTS:
                self.fail(f"there is no {stmt.op} {word} {dtype}.")
        if stmt.op == "bitcast" and stmt.dtype.itemsize != source.itemsize:
            self.fail(f"{DTYPE_NAMES[source]} and {DTYPE_NAMES[stmt.dtype]} differ in width.")

    def fold(self, stmt: Reduce | Scan) -> None:
        monoid = MONOIDS.get(stmt.monoid)
        if monoid is None:
            self.fail(f"there is no monoid {stmt.monoid}.")
        if not len(stmt.args) == len(stmt.results) == len(stmt.dtypes) == monoid.arity:
            self.fail(f"{stmt.monoid} folds {monoid.arity} values.")
        dtypes = tuple(self.value(a) for a in stmt.args)
        if dtypes != stmt.dtypes:
            self.fail(f"the values are {', '.join(DTYPE_NAMES[d] for d in dtypes)}.")
        for domain, dtype in zip(monoid.domains, dtypes, strict=True):
            if dtype not in DOMAINS[domain]:
                self.fail(f"{stmt.monoid} does not fold {DTYPE_NAMES[dtype]}.")
        if stmt.monoid == "welford" and len(set(dtypes)) > 1:
            self.fail("the three parts of welford share one dtype.")
