"""Random kernels that keep the rules of the IR, and a second interpreter that runs them one point at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as points_of

import torch
from hypothesis import strategies as st
from torch import Tensor

from keel.loops.index import Axis, Div, Index, Loaded, Mod, flatten, index, mod
from keel.loops.ir import Apply, Buffer, Const, Kernel, Load, Loop, Position, Reduce, Scan, Stmt, Store
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS
from keel.loops.scalar_semantics import evaluate_op
from keel.loops.symbolic_sizes import evaluate
from keel.loops.torch_monoids import combine, identity
from keel.loops.verify import DOMAINS
from keel.types import Dim, contiguous_strides, product

from .indices import S0, S1, SYMBOLS

SIZES: tuple[Dim, ...] = (1, 2, 3, S0, S1)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int8, torch.uint8, torch.uint32, torch.bool)
# What gives the same on one element and on many, and keeps small integers exact.
OPS = (
    "neg",
    "abs",
    "sign",
    "floor",
    "sqrt",
    "isnan",
    "add",
    "sub",
    "mul",
    "minimum",
    "maximum",
    "eq",
    "lt",
    "ge",
    "and",
    "or",
    "xor",
    "not",
    "floordiv",
    "mod",
    "where",
)
INS = (
    Buffer("a", torch.float32, 7, "in"),
    Buffer("b", torch.int64, 5 * S0, "in"),
    Buffer("c", torch.bool, S1, "in"),
    Buffer("d", torch.bfloat16, 11, "in"),
)
NUMBERS = {
    torch.bool: st.booleans(),
    torch.float32: st.sampled_from((0.0, -0.0, 1.5, -2.0, math.inf, math.nan, 1e-05)),
    torch.float64: st.sampled_from((0.5, -3.0, -math.inf, 1e300)),
}


@dataclass
class Maker:
    """Draws a kernel from the outside in."""

    draw: st.DrawFn
    next: int = 0
    loops: int = 0
    outs: list[Buffer] = field(default_factory=list)

    def number(self) -> int:
        self.next += 1
        return self.next - 1

    def block(
        self, axes: tuple[Axis, ...], visible: Mapping[int, torch.dtype], kind: str, depth: int
    ) -> tuple[list[Stmt], dict[int, torch.dtype]]:
        known = dict(visible)
        body: list[Stmt] = [self.value(axes, known) for _ in range(self.draw(st.integers(1, 4)))]
        if depth < 2 and kind != "scan":
            for _ in range(self.draw(st.integers(0, 2))):
                body.append(self.loop(axes, known, kind, depth))
                body.append(self.value(axes, known))
        folded = self.last(axes, known, kind, body)
        return body, folded

    def last(
        self, axes: tuple[Axis, ...], known: dict[int, torch.dtype], kind: str, body: list[Stmt]
    ) -> dict[int, torch.dtype]:
        """What a block is for: a fold, or a store of something that is in memory's dtypes."""
        if kind == "reduce" and self.draw(st.booleans()):
            body.append(self.store(axes, known, self.draw(st.sampled_from(sorted(known)[-3:]))))
        if kind in ("reduce", "scan"):
            fold = self.fold(known, Reduce if kind == "reduce" else Scan)
            body.append(fold)
            results = dict(zip(fold.results, fold.dtypes, strict=True))
            if kind == "reduce":
                return results
            known |= results
        if kind != "reduce":
            value = self.draw(st.sampled_from(sorted(known)[-3:]))
            body.append(self.store(axes, known, value))
        return {}

    def loop(self, axes: tuple[Axis, ...], known: dict[int, torch.dtype], around: str, depth: int) -> Loop:
        kinds = ("reduce",) if around == "reduce" else ("parallel", "reduce", "scan")
        kind = self.draw(st.sampled_from(kinds))
        inner = tuple(
            Axis(f"{kind[0]}{self.loops}{n}", self.draw(st.sampled_from(SIZES)))
            for n in range(1 if kind == "scan" else self.draw(st.integers(1, 2)))
        )
        self.loops += 1
        body, folded = self.block((*axes, *inner), known, kind, depth + 1)
        known |= folded
        return Loop(kind, inner, tuple(body))

    def index(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype], size: Dim) -> Index:
        """Any index within the size, as the last step of its making."""
        atoms: list[Index] = [index(a) for a in axes] + [index(self.draw(st.integers(-2, 5)))]
        atoms += [index(Loaded(n, 50)) for n, d in known.items() if d in (torch.int64, torch.uint8)]
        total = index(0)
        for atom in self.draw(st.lists(st.sampled_from(atoms), max_size=3)):
            total = total + atom * self.draw(st.sampled_from((1, 2, -1, 3, S0)))
        if self.draw(st.booleans()):
            total = total // self.draw(st.sampled_from((2, 3, S1)))
        return mod(total, size)

    def pick(self, known: Mapping[int, torch.dtype], dtypes: Collection[torch.dtype]) -> int | None:
        fits = [n for n, d in known.items() if d in dtypes]
        return self.draw(st.sampled_from(fits)) if fits else None

    def value(self, axes: tuple[Axis, ...], known: dict[int, torch.dtype]) -> Stmt:
        forms = (self.const, self.load, self.position, self.apply, self.apply, self.cast)
        stmt = self.draw(st.sampled_from(forms))(axes, known)
        known[stmt.result] = stmt.dtype
        return stmt

    def const(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype]) -> Stmt:
        dtype = self.draw(st.sampled_from(DTYPES))
        values = NUMBERS.get(dtype, st.integers(-3 if dtype.is_signed else 0, 5))
        return Const(self.number(), self.draw(values), dtype)

    def load(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype]) -> Stmt:
        buffer = self.draw(st.sampled_from(INS))
        mask = self.pick(known, (torch.bool,)) if self.draw(st.booleans()) else None
        return Load(self.number(), buffer.name, self.index(axes, known, buffer.size), buffer.dtype, mask)

    def position(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype]) -> Stmt:
        return Position(self.number(), self.index(axes, known, 9))

    def apply(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype]) -> Stmt:
        row = SCALARS[self.draw(st.sampled_from(OPS))]
        first = self.pick(known, DOMAINS[row.domain])
        if first is None:
            return self.const(axes, known)
        dtype = known[first]
        args = [first, *(self.pick(known, (dtype,)) for _ in range(row.arity - 1))]
        if row.name == "where":
            condition = self.pick(known, (torch.bool,))
            if condition is None:
                return self.const(axes, known)
            args[0] = condition
            dtype = known[args[1]] if (args[1] is not None) else dtype
        return Apply(self.number(), row.name, tuple(args), torch.bool if row.result == "bool" else dtype)

    def cast(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype]) -> Stmt:
        wanted = self.draw(st.sampled_from((torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)))
        floats = (torch.float32, torch.float64, torch.bfloat16)
        # Beyond the range of an integer, a float's conversion is free.
        free = wanted in (*floats, torch.bool)
        given = self.pick(known, [d for d in (*DTYPES, torch.bfloat16) if free or d not in floats])
        return Apply(self.number(), "cast", (given,), wanted) if given is not None else self.const(axes, known)

    def fold(self, known: Mapping[int, torch.dtype], form: type[Reduce] | type[Scan]) -> Reduce | Scan:
        names = [
            m.name
            for m in MONOIDS.values()
            if m.name not in ("welford", "prod")
            and all(any(d in DOMAINS[dom] for d in known.values()) for dom in m.domains)
        ]
        if not names:
            raise AssertionError("every block has a value that any, all, argmax or sum can fold")
        monoid = MONOIDS[self.draw(st.sampled_from(names))]
        args = tuple(self.pick(known, DOMAINS[d]) for d in monoid.domains)
        return form(tuple(self.number() for _ in args), monoid.name, args, tuple(known[a] for a in args))

    def store(self, axes: tuple[Axis, ...], known: Mapping[int, torch.dtype], value: int) -> Store:
        """To a buffer of its own, at a place of its own for each point."""
        sizes = tuple(a.size for a in axes)
        buffer = Buffer(f"out{len(self.outs)}", known[value], product(sizes), "out")
        self.outs.append(buffer)
        mask = self.pick(known, (torch.bool,)) if self.draw(st.booleans()) else None
        return Store(buffer.name, flatten(map(index, axes), contiguous_strides(sizes)), value, "write", mask)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    maker = Maker(draw)
    known: dict[int, torch.dtype] = {}
    body: list[Stmt] = [Const(maker.number(), draw(st.booleans()), torch.bool), Const(maker.number(), 2, torch.int64)]
    known |= {0: torch.bool, 1: torch.int64}
    body += [maker.loop((), known, "top", 0) for _ in range(draw(st.integers(1, 3)))]
    body.append(maker.store((), known, draw(st.sampled_from(sorted(known)))))
    return Kernel("k", (*INS, *maker.outs), tuple(body))


def memory(kernel: Kernel, seed: int) -> list[Tensor]:
    """Buffers of small numbers; the out buffers hold zeros."""
    g = torch.Generator().manual_seed(seed)
    found = []
    for b in kernel.buffers:
        values = torch.randint(0, 5, (evaluate(b.size, SYMBOLS),), generator=g)
        found.append(
            (values - 2 if b.dtype.is_signed else values).to(b.dtype)
            if b.role == "in"
            else torch.zeros(values.shape, dtype=b.dtype)
        )
    return found


# -- one point at a time -------------------------------------------------------------------------------

Values = dict[int, Tensor]


def step_through(kernel: Kernel, buffers: Sequence[Tensor], symbols: Mapping[str, int]) -> None:
    """Runs the kernel as a program of nested loops over single numbers."""
    held = {b.name: t for b, t in zip(kernel.buffers, buffers, strict=True)}
    _Stepper(held, symbols).block(kernel.body, {}, {}, {})


@dataclass
class _Stepper:
    held: Mapping[str, Tensor]
    symbols: Mapping[str, int]

    def block(
        self, body: tuple[Stmt, ...], point: Mapping[str, int], values: Values, state: dict[int, tuple[Tensor, ...]]
    ) -> None:
        for stmt in body:
            match stmt:
                case Loop():
                    self.loop(stmt, point, values)
                case Reduce() | Scan():
                    here = tuple(values[a] for a in stmt.args)
                    state[stmt.results[0]] = combine(stmt.monoid, state[stmt.results[0]], here)
                    if isinstance(stmt, Scan):
                        values |= zip(stmt.results, state[stmt.results[0]], strict=True)
                case Const():
                    values[stmt.result] = torch.tensor(stmt.value, dtype=stmt.dtype)
                case Position():
                    values[stmt.result] = torch.tensor(self.at(stmt.index, point, values))
                case Load():
                    read = stmt.mask is None or bool(values[stmt.mask])
                    found = self.held[stmt.buffer][self.at(stmt.index, point, values)].clone() if read else None
                    values[stmt.result] = torch.zeros((), dtype=stmt.dtype) if found is None else found
                case Apply():
                    values[stmt.result] = evaluate_op(stmt.op, tuple(values[a] for a in stmt.args), stmt.dtype)
                case Store():
                    if stmt.mask is None or values[stmt.mask]:
                        self.held[stmt.buffer][self.at(stmt.index, point, values)] = values[stmt.value]

    def loop(self, loop: Loop, point: Mapping[str, int], values: Values) -> None:
        folds = [s for s in loop.body if isinstance(s, Reduce | Scan)]
        state = {f.results[0]: identity(f.monoid, f.dtypes, ()) for f in folds}
        for at in points_of(*(range(evaluate(a.size, self.symbols)) for a in loop.axes)):
            here = dict(point) | {a.name: p for a, p in zip(loop.axes, at, strict=True)}
            self.block(loop.body, here, dict(values), state)
        if loop.kind == "reduce":
            for f in folds:
                values |= zip(f.results, state[f.results[0]], strict=True)

    def at(self, i: Index, point: Mapping[str, int], values: Values) -> int:
        total = evaluate(i.const, self.symbols)
        for atom, c in i.terms:
            match atom:
                case Axis():
                    here = point[atom.name]
                case Loaded():
                    here = int(values[atom.value])
                case Div():
                    here = self.at(atom.of, point, values) // evaluate(atom.by, self.symbols)
                case Mod():
                    here = self.at(atom.of, point, values) % evaluate(atom.by, self.symbols)
            total += here * evaluate(c, self.symbols)
        return total
