"""Kernels drawn at random by the rules of the verifier: nests of all kinds, whose results are exact in any order.

Values are small integers whatever their dtype, and no operation leaves them, so the interpreter's result must be met
bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Literal

import sympy
import torch

from keel import Dim
from keel.loops import (
    Apply,
    Axis,
    Buffer,
    Check,
    Const,
    Index,
    Kernel,
    Load,
    Loaded,
    Loop,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    index,
    verify,
)

from .kernel_case import CALLS, BufferFill, KernelCase
from .kernel_template import SAME, ZERO

VALUES = (torch.float32, torch.float64, torch.int32, torch.int64)
SIZES = (0, 1, 2, 3, 5, 7, 8, 16, 17, 31, 33, 40, 130)
LIMIT = 1 << 13
"""Points of a kernel, at most."""
EXACT = 1 << 22
"""No float is larger, so that float32 has every sum in any order."""


@dataclass
class RandomKernel:
    """A kernel, and what to run it with: each symbol's value and each buffer's number of elements."""

    kernel: Kernel
    symbols: dict[str, int]
    sizes: dict[str, int]
    fills: dict[str, BufferFill] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the kernel is one: with axes of size 0, some loads would be out of bounds."""
        return all(n > 0 for n in self.sizes.values())


@dataclass
class _KernelGenerator:
    random: Random
    symbols: dict[str, int] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    bounds: dict[int, int] = field(default_factory=dict)  # how large a value may be
    fills: dict[str, BufferFill] = field(default_factory=dict)
    values: int = 0
    axes: int = 0

    def number(self) -> int:
        self.values += 1
        return self.values - 1

    # -- sizes ------------------------------------------------------------------------------------------------------

    def axis(self, room: int) -> Axis:
        size = self.random.choice([s for s in SIZES if s <= max(room, 1)])
        if size == 0 and self.random.random() < 0.7:
            size = 4
        self.axes += 1
        name = f"i{self.axes}"
        if size > 0 and self.random.random() < 0.4:
            symbol = f"s{len(self.symbols)}"
            self.symbols[symbol] = size
            return Axis(name, sympy.Symbol(symbol, integer=True, positive=True))
        return Axis(name, size)

    def size(self, d: Dim) -> int:
        return d if isinstance(d, int) else int(d.subs({s: self.symbols[str(s)] for s in d.free_symbols}))

    def place(self, axes: list[Axis], all_of_them: bool) -> tuple[Index, Dim]:
        """An index over some of the axes in some order, row-major, and the number of elements it counts through."""
        order = [a for a in axes if all_of_them or self.random.random() < 0.8]
        if self.random.random() < 0.4:
            self.random.shuffle(order)
        at, step = Index(), 1
        for a in reversed(order):
            if self.random.random() < 0.1:
                at, step = at + (index(a.size - 1) - index(a)) * step, step * a.size
            else:
                at, step = at + index(a) * step, step * a.size
        if not all_of_them and len(order) == 1 and self.random.random() < 0.3:
            by = self.random.choice((2, 3, 5))
            at = at // by if self.random.random() < 0.5 else at % by
        return at, step

    def buffer(self, dtype: torch.dtype, size: Dim, role: Literal["in", "out", "inout"]) -> str:
        name = f"b{len(self.buffers)}"
        self.buffers.append(Buffer(name, dtype, size, role))
        self.sizes[name] = self.size(size)
        return name

    def bound(self, value: int) -> int:
        return self.bounds.get(value, 5)

    def points(self, axes: Sequence[Axis]) -> int:
        return prod(max(self.size(a.size), 1) for a in axes)

    # -- statements -------------------------------------------------------------------------------------------------

    def load(self, axes: list[Axis], dtype: torch.dtype, out: list[Stmt]) -> int:
        mask = None
        if axes and self.random.random() < 0.2:
            position, bound, mask = self.number(), self.number(), self.number()
            a = self.random.choice(axes)
            out += [
                Position(position, index(a)),
                Const(bound, self.random.randint(0, 9), torch.int64),
                Apply(mask, self.random.choice(("lt", "ge")), (position, bound), torch.bool),
            ]
        at, size = self.place(axes, False)
        same = False  # wherever an index leads, there is the same
        if self.random.random() < 0.1:
            which, rows = self.number(), self.random.choice((2, 5))
            where, many = self.place(axes, False)
            held = self.buffer(torch.int64, many, "in")
            self.fills[held] = BufferFill("ints", 0, 2)
            out.append(Load(which, held, where, torch.int64))
            if self.random.random() < 0.5:
                which, same = self.check(which, held, rows, mask, out)
            at, size = at + index(Loaded(which, rows)) * size, size * rows
        if self.random.random() < 0.15:  # every second or third element
            step = self.random.choice((2, 3))
            at, size = at * step + self.random.randrange(step), size * step
        n = self.number()
        known = [
            b
            for b in self.buffers
            if b.role == "in" and b.dtype == dtype and b.size == size and b.name not in self.fills
        ]
        name = known[-1].name if known and not same and self.random.random() < 0.5 else self.buffer(dtype, size, "in")
        if same:
            self.fills[name] = SAME
        out.append(Load(n, name, at, dtype, mask))
        return n

    def check(self, value: int, held: str, rows: int, mask: int | None, out: list[Stmt]) -> tuple[int, bool]:
        """Appends a bounds check of the index ``value``. Returns the number of the checked index and whether indices in
        ``held`` may be out of bounds, in which case the buffer that is read has equal elements.
        """
        n, wrap, right = self.number(), self.random.random() < 0.5, self.random.random() < 0.5
        low, high = (-rows if wrap else 0), rows
        if not right:
            low, high = self.random.choice(((low - 1, low + 1), (high - 1, high + 1)))
        self.fills[held] = BufferFill("ints", low, high)
        sites = self.random.choice((1, 3))
        record = self.buffer(torch.int64, sites, "inout")
        self.fills[record] = ZERO
        out.append(Check(n, value, rows, record, self.random.randrange(sites), wrap, mask))
        return n, not right

    def value(self, axes: list[Axis], known: dict[torch.dtype, list[int]], dtype: torch.dtype, out: list[Stmt]) -> int:
        """A value made of loads, positions and what is known already."""
        have = [self.load(axes, dtype, out), *known.get(dtype, [])[-3:]]
        if axes and dtype == torch.int64 and self.random.random() < 0.5:
            n = self.number()
            out.append(Position(n, index(self.random.choice(axes)) % 5))
            have.append(n)
        for _ in range(self.random.randint(0, 3)):
            a, b = self.random.choice(have), self.random.choice(have)
            n = self.number()
            match self.random.choice(("add", "sub", "maximum", "minimum", "neg", "abs", "where")):
                case "where":
                    flag = self.number()
                    out += [
                        Apply(flag, self.random.choice(("lt", "eq", "ge")), (a, b), torch.bool),
                        Apply(n, "where", (flag, a, b), dtype),
                    ]
                case "neg" | "abs" as op:
                    out.append(Apply(n, op, (a,), dtype))
                case op:
                    if self.bound(a) + self.bound(b) > EXACT:
                        op = "minimum"
                    out.append(Apply(n, op, (a, b), dtype))
            self.bounds[n] = self.bound(a) + self.bound(b)
            have.append(n)
        known.setdefault(dtype, []).append(have[-1])
        return have[-1]

    def fold(self, axes: list[Axis], known: dict[torch.dtype, list[int]], out: list[Stmt], kind: type) -> list[int]:
        dtype = self.random.choice(VALUES)
        monoid = self.random.choice(("sum", "max", "min", "argmax", "argmin", "any"))
        value = self.value(axes, known, dtype, out)
        if self.bound(value) * self.points(axes) > EXACT and monoid == "sum":
            monoid = "max"
        args: tuple[int, ...] = (value,)
        dtypes: tuple[torch.dtype, ...] = (dtype,)
        if monoid.startswith("arg"):
            at = self.number()
            out.append(Position(at, index(axes[-1])))
            args, dtypes = (value, at), (dtype, torch.int64)
        elif monoid == "any":
            flag = self.number()
            other = self.value(axes, known, dtype, out)
            out.append(Apply(flag, "gt", (value, other), torch.bool))
            args, dtypes = (flag,), (torch.bool,)
        results = tuple(self.number() for _ in args)
        self.bounds |= dict.fromkeys(results, self.bound(value) * (self.points(axes) if monoid == "sum" else 1))
        out.append(kind(results, monoid, args, dtypes))
        return [r for r, d in zip(results, dtypes, strict=True) if d != torch.bool]

    def store(self, axes: list[Axis], value: int, dtype: torch.dtype, out: list[Stmt]) -> None:
        if self.random.random() < 0.15:  # to one element from several points
            at, size = self.place(axes, False)
            modes: tuple[Literal["add", "min", "max"], ...] = ("add", "min", "max")
            mode = self.random.choice(modes)
            if self.bound(value) * self.points(axes) > EXACT:
                mode = "min"
            out.append(Store(self.buffer(dtype, size, "inout"), at, value, mode))
            return
        at, size = self.place(axes, True)
        if self.random.random() < 0.15:  # two elements side by side
            name = self.buffer(dtype, size * 2, "out")
            other = self.value(axes, {}, dtype, out)
            out += [Store(name, at * 2, value), Store(name, at * 2 + 1, other)]
            return
        out.append(Store(self.buffer(dtype, size, "out"), at, value))

    # -- loops ------------------------------------------------------------------------------------------------------

    def body(self, axes: list[Axis], known: dict[torch.dtype, list[int]], room: int, depth: int) -> list[Stmt]:
        out: list[Stmt] = []
        known = {d: list(v) for d, v in known.items()}
        for _ in range(self.random.randint(1, 2) if depth < 3 and room > 1 else 0):
            kind = self.random.choice(("parallel", "reduce", "reduce", "scan"))
            loop = self.loop(kind, axes, known, room, depth)
            out.append(loop)
            if kind == "reduce":
                for s in loop.body:
                    if isinstance(s, Reduce):
                        for r, d in zip(s.results, s.dtypes, strict=True):
                            if d != torch.bool:
                                known.setdefault(d, []).append(r)
        for _ in range(self.random.randint(1, 2)):
            dtype = self.random.choice(VALUES)
            self.store(axes, self.value(axes, known, dtype, out), dtype, out)
        return out

    def loop(self, kind: str, around: list[Axis], known: dict[torch.dtype, list[int]], room: int, depth: int) -> Loop:
        count = 1 if kind == "scan" else self.random.choice((1, 1, 2, 3))
        own: list[Axis] = []
        for _ in range(count):
            axis = self.axis(room)
            own.append(axis)
            room //= max(self.size(axis.size), 1)
        axes = [*around, *own]
        if kind == "parallel":
            return Loop("parallel", tuple(own), tuple(self.body(axes, known, room, depth + 1)))
        out: list[Stmt] = []
        known = {d: list(v) for d, v in known.items()}
        if kind == "reduce":
            if depth < 2 and room > 3 and self.random.random() < 0.25:
                inner = self.loop("reduce", axes, known, room, depth + 1)
                out.append(inner)
                for s in inner.body:
                    if isinstance(s, Reduce) and s.dtypes[0] != torch.bool:
                        known.setdefault(s.dtypes[0], []).append(s.results[0])
            for _ in range(self.random.randint(1, 2)):
                self.fold(axes, known, out, Reduce)
            if self.random.random() < 0.4:
                dtype = self.random.choice(VALUES)
                self.store(axes, self.value(axes, known, dtype, out), dtype, out)
        else:
            for r in self.fold(axes, known, out, Scan):
                fold = out[-1]
                assert isinstance(fold, Scan)
                held = dict(zip(fold.results, fold.dtypes, strict=True))
                known.setdefault(held[r], []).append(r)
            dtype = self.random.choice(VALUES)
            self.store(axes, self.value(axes, known, dtype, out), dtype, out)
        return Loop("reduce" if kind == "reduce" else "scan", tuple(own), tuple(out))


def draw(seed: int) -> RandomKernel:
    """The kernel of that seed."""
    d = _KernelGenerator(Random(seed))
    body: list[Stmt] = []
    known: dict[torch.dtype, list[int]] = {}
    for _ in range(d.random.choice((1, 1, 2))):
        kind = d.random.choice(("parallel", "parallel", "parallel", "reduce"))
        loop = d.loop(kind, [], known, LIMIT, 0)
        body.append(loop)
        for s in loop.body:
            if kind == "reduce" and isinstance(s, Reduce):
                for r, t in zip(s.results, s.dtypes, strict=True):
                    if t != torch.bool:
                        d.store([], r, t, body)
                        known.setdefault(t, []).append(r)
    if not any(b.role == "out" for b in d.buffers):
        d.store([], d.value([], known, torch.float32, body), torch.float32, body)
    return RandomKernel(Kernel(f"drawn{seed}", tuple(d.buffers), tuple(body)), d.symbols, d.sizes, d.fills)


def made(seed: int) -> KernelCase:
    """The kernel of that seed, or of the next one that gives a valid kernel, with what it is run on."""
    while not (drawn := draw(seed)).ok:
        seed += 1_000_003
    verify(drawn.kernel)
    return KernelCase(drawn.kernel, (drawn.symbols,) * CALLS, drawn.fills)
