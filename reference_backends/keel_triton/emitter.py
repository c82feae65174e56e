"""Prints the statements of one part as Triton, line by line, according to the launch plan.

A value that belongs to a row has shape [XBLOCK, 1], one inside a loop [XBLOCK, width]; a value that varies along only
one of the two keeps the other at 1, and a scalar has no shape.  Equal expressions are printed once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import torch

from keel import Dim, KeelError
from keel.loops import (
    Apply,
    Axis,
    Check,
    Const,
    Div,
    Index,
    Load,
    Loaded,
    Loop,
    Mod,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    axes_of,
    results_of,
    walk,
)
from keel_triton.barriers import Memory, crosses_lanes
from keel_triton.combiners import combined, function, identities, name
from keel_triton.index_text import Var, index_text, merged, narrowed, product_text, runs, size_text, tight
from keel_triton.launch_plan import UNROLLED, Launch, length, mode, padded
from keel_triton.launch_split import indices, reads
from keel_triton.op_table import ATOMIC_ADD, DTYPES, REDUCTIONS, apply, literal

X, R = frozenset("x"), frozenset("r")
NONE = frozenset[str]()
NOWHERE = frozenset[tuple[str, str]]()


@dataclass(frozen=True)
class Level:
    """The position of a statement: the dimensions of its block, the width of r, and the masks of the lanes of x
    and r.
    """

    dims: frozenset[str]
    width: str
    masks: Mapping[str, str]


@dataclass(frozen=True)
class Digit:
    """An axis as one digit of a flattened position."""

    flat: Var
    step: tuple[Dim, ...]
    size: Dim | None


def body(launch: Launch, part: int, helpers: dict[str, str]) -> list[str]:
    """The lines of one part. Functions that they call are added to ``helpers``."""
    return _Printer(launch, part, helpers).run()


class _Printer:
    def __init__(self, launch: Launch, part: int, helpers: dict[str, str]):
        self.launch, self.part, self.helpers = launch, launch.parts[part], helpers
        self.xblock = f"XBLOCK{launch.suffix(part)}" if self.part.axes else "1"
        self.rblock = f"RBLOCK{launch.suffix(part)}"
        self.cast = {"int32": "", "int64": ".to(tl.int64)", "INDEX": ".to(INDEX)"}[launch.index]
        self.lines: list[str] = []
        self.indent, self.loops = "", 0
        self.values: dict[int, Var] = {}
        self.origins: dict[int, frozenset[tuple[str, str]]] = {}
        self.axes: dict[Axis, Var | Digit] = {}
        self.groups: dict[tuple[Axis, ...], Var] = {}
        self.seen: ChainMap[str, Var] = ChainMap()
        self.named: dict[str, str] = {}
        self.memory = Memory()

    def run(self) -> list[str]:
        part, masks = self.part, {}
        if part.axes:
            pid, rows = f"pid{self.cast}", product_text(part.rows, self.launch.sizes)
            if part.outer:
                self.emit(f"y = {pid} // tl.cdiv({rows}, {self.xblock})")
                self.spread(part.outer, Var("y", NONE, torch.int64))
                pid = f"({pid} % tl.cdiv({rows}, {self.xblock}))"
            x = f"{pid} * {self.xblock} + tl.arange(0, {self.xblock})"
            self.emit(f"x = {x}" if part.rank == 1 else f"x = ({x})[:, None]")
            self.emit(f"x_in = x < {rows}")
            self.spread(part.axes, Var("x", X, torch.int64))
            masks = {"x": "x_in"}
        level = Level(X if part.rank else NONE, "", masks)
        for s in part.body:
            self.stmt(s, level)
        return self.lines

    # -- lines and names -------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def define(self, target: str, text: str, dims: frozenset[str], dtype: torch.dtype) -> Var:
        """The variable for ``text``: an existing one, or a new one named after ``target``. A name always stands for the
        same text, so that texts which contain it can be compared.
        """
        if text not in self.seen:
            while self.named.setdefault(target, text) != text:
                target += "_"
            self.emit(f"{target} = {text}")
            self.seen[text] = Var(target, dims, dtype)
        return self.seen[text]

    def open(self, head: str) -> None:
        self.emit(head)
        self.indent += "    "
        self.seen = self.seen.new_child()

    def close(self) -> None:
        self.indent = self.indent[4:]
        self.seen = self.seen.parents

    def forget(self, buffer: str) -> None:
        """Forgets values loaded from ``buffer``, because its contents may have changed."""
        for scope in self.seen.maps:
            for text in [t for t in scope if t.startswith(f"tl.load({buffer} + ")]:
                del scope[text]

    def barrier(self) -> None:
        self.emit("tl.debug_barrier()")
        self.memory.settle()

    def shape(self, dims: frozenset[str], width: str) -> str:
        if self.part.rank < 2:
            return f"[{self.xblock}]" if self.part.rank and dims else "[]"
        return f"[{self.xblock if 'x' in dims else 1}, {width if 'r' in dims else 1}]"

    def covers(self, dims: frozenset[str], required: frozenset[str]) -> bool:
        """True if a value of ``dims`` has the shape of one of ``required``. A block of one row has the shape of a
        scalar.
        """
        return required <= (dims | X if dims and not self.part.axes else dims)

    # -- indices ---------------------------------------------------------------------------------------

    def spread(self, axes: tuple[Axis, ...], flat: Var) -> None:
        """Makes each of ``axes`` a digit of the position ``flat``."""
        self.release(axes)
        axes = tuple(a for a in axes if a.size != 1)
        self.groups[axes] = flat
        for k, axis in enumerate(axes):
            self.axes[axis] = self.digit(axes, k, k + 1)

    def release(self, axes: tuple[Axis, ...]) -> None:
        """Ends the scope of ``axes``. Their names may be reused by another loop."""
        self.groups = {g: v for g, v in self.groups.items() if not set(g) & set(axes)}

    def digit(self, axes: tuple[Axis, ...], start: int, stop: int) -> Var | Digit:
        """The digits from ``start`` to ``stop`` of a position, as one number."""
        flat, rest = self.groups[axes], tuple(a.size for a in axes[stop:])
        size = prod(a.size for a in axes[start:stop]) if start else None
        return Digit(flat, rest, size) if start or rest else flat

    def folded(self, i: Index) -> Index:
        """Merges digits in ``i`` that form one number: x instead of n*(x // n) + x % n."""
        for axes in self.groups:
            for start, stop in runs(i, axes):
                joint = Axis("".join(a.name for a in axes[start:stop]), prod(a.size for a in axes[start:stop]))
                self.axes[joint] = self.digit(axes, start, stop)
                i = merged(i, axes[start:stop], joint)
        terms = [(replace(t, of=self.folded(t.of)) if isinstance(t, Div | Mod) else t, c) for t, c in i.terms]
        return Index(i.const, tuple(terms))

    def lookup(self, atom: Axis | Loaded) -> Var:
        if isinstance(atom, Loaded):
            var = self.values[atom.value]
            return Var(narrowed(var, self.launch.index), var.dims, var.dtype)
        digit = self.axes[atom]
        if isinstance(digit, Var):
            return digit
        text = digit.flat.text
        if digit.step:
            text = f"{text} // {self.size(digit.step)}"
        if digit.size is not None:
            text = f"{f'({text})' if digit.step else text} % {self.size((digit.size,))}"
        return self.define(f"{digit.flat.text}_{atom.name}", text, digit.flat.dims, digit.flat.dtype)

    def size(self, sizes: tuple[Dim, ...]) -> str:
        return tight(product_text(sizes, self.launch.sizes))

    def index(self, i: Index) -> tuple[str, frozenset[str]]:
        return index_text(self.folded(i), self.lookup, self.launch.sizes)

    def address(self, buffer: str, i: Index, dims: frozenset[str], width: str) -> tuple[str, str, frozenset[str]]:
        """(pointer, index, dims) of one element for each point of at least ``dims``."""
        text, varies = self.index(i)
        if not self.covers(varies, dims):
            varies |= dims
            text += f" + tl.zeros({self.shape(varies, width)}, tl.int32)"
        return f"{self.launch.names[buffer]} + {tight(text)}", text, varies

    # -- statements ------------------------------------------------------------------------------------

    def stmt(self, s: Stmt, level: Level) -> None:
        if (made := results_of(s)) and all(r in self.values for r in made):
            return  # it was hoisted out of its loop
        match s:
            case Const():
                self.bind(s.result, literal(s.value, s.dtype), NONE, s.dtype)
            case Position():
                text, dims = self.index(s.index)
                wide = f"{tight(text)}.to(tl.int64)" if dims else f"tl.full([], 0, tl.int64) + {tight(text)}"
                self.bind(s.result, literal(int(text), s.dtype) if text.isdigit() else wide, dims, s.dtype)
            case Load():
                self.load(s, level)
            case Apply():
                args = [self.values[a] for a in s.args]
                source = args[1 if s.op == "where" else 0].dtype
                dims = frozenset[str]().union(*(a.dims for a in args))
                self.origins[s.result] = NOWHERE.union(*(self.origins.get(a, NOWHERE) for a in s.args))
                self.bind(s.result, apply(s.op, tuple(a.text for a in args), source, s.dtype), dims, s.dtype)
            case Check():
                self.check(s, level)
            case Store():
                self.store(s, level)
            case Loop():
                self.loop(s, level)
            case Reduce() | Scan():
                raise KeelError("bad-graph", f"{self.launch.name}: the fold {s.monoid} does not stand in a loop.")

    def bind(self, result: int, text: str, dims: frozenset[str], dtype: torch.dtype) -> None:
        self.values[result] = self.define(f"v{result}", text, dims, dtype)

    def load(self, s: Load, level: Level) -> None:
        masked = NONE if s.mask is None else self.values[s.mask].dims
        pointer, index, dims = self.address(s.buffer, s.index, masked, level.width)
        if self.memory.load(s.buffer, index):
            self.barrier()
            self.memory.load(s.buffer, index)
        self.origins[s.result] = frozenset({(s.buffer, index)})
        masks = [level.masks[d] for d in "xr" if d in dims and d in level.masks]
        if s.mask is None:
            text = f"tl.load({', '.join((pointer, *([' & '.join(masks)] if masks else [])))})"
        else:
            text = f"tl.load({pointer}, {' & '.join((*masks, self.values[s.mask].text))}, other=0)"
        self.bind(s.result, text, dims, s.dtype)

    def check(self, s: Check, level: Level) -> None:
        """The index if it is in bounds, else 0. Lanes whose index is out of bounds write it to the error buffer; any
        one of them stays.
        """
        index, size = self.values[s.value], size_text(s.bound, self.launch.sizes)
        dims, at = index.dims, index
        if s.wrap:
            text = f"tl.where({index.text} < 0, {index.text} + {tight(size)}, {index.text})"
            at = self.define(f"v{s.result}_at", text, dims, torch.int64)
        out = self.define(f"v{s.result}_out", f"({at.text} < 0) | ({at.text} >= {tight(size)})", dims, torch.bool)
        varies = dims | (NONE if s.mask is None else self.values[s.mask].dims)
        wrong = [out.text, *(level.masks[d] for d in "xr" if d in varies and d in level.masks)]
        wrong += [] if s.mask is None else [self.values[s.mask].text]
        zeros = f" + tl.zeros({self.shape(varies, level.width)}, tl.int32)" if varies else ""
        code = f"tl.where({index.text} < 0, {index.text}, {index.text} + 1)"
        pointer = f"{self.launch.names[s.buffer]} + {tight(f'{s.site}{zeros}')}"
        self.emit(f"tl.store({pointer}, {code}, {' & '.join(wrong)})")
        self.bind(s.result, f"tl.where({out.text}, 0, {at.text})", dims, torch.int64)

    def store(self, s: Store, level: Level) -> None:
        pointer, index, _ = self.address(s.buffer, s.index, level.dims, level.width)
        if self.memory.store(s.buffer, index, self.origins.get(s.value, NOWHERE)):
            self.barrier()
            self.memory.store(s.buffer, index)
        self.forget(self.launch.names[s.buffer])
        masks = [level.masks[d] for d in "xr" if d in level.masks]
        if s.mask is not None:
            masks.append(self.values[s.mask].text)
        value = self.values[s.value]
        rest = f"{value.text}{', ' if masks else ''}{' & '.join(masks)}"
        if s.mode == "write":
            self.emit(f"tl.store({pointer}, {rest})")
        elif s.mode == "add" and value.dtype in ATOMIC_ADD:
            self.emit(f'tl.atomic_add({pointer}, {rest}, sem="relaxed")')
        else:
            dtype = str(value.dtype).removeprefix("torch.")
            raise KeelError("no-lowering", f"{self.launch.name}: Triton has no atomic {s.mode} of {dtype}.")

    # -- loops -----------------------------------------------------------------------------------------

    def loop(self, loop: Loop, level: Level) -> None:
        self.loops += 1
        way = mode(loop, self.part) if self.part.rank == 2 and "r" not in level.dims else "serial"
        if way == "block":
            self.block(loop, level)
        elif way == "steps":
            self.steps(loop, level)
        else:
            self.serial(loop, level)

    def block(self, loop: Loop, level: Level) -> None:
        """Runs the whole loop in one block."""
        size = length(loop)
        width = str(padded(size))
        r = self.define(f"r{self.loops}", f"tl.arange(0, {width})[None, :]{self.cast}", R, torch.int64)
        masks = dict(level.masks)
        if width != str(size):
            masks["r"] = self.define(f"{r.text}_in", f"{r.text} < {size}", R, torch.bool).text
        self.spread(loop.axes, r)
        inner = Level(X | R, width, masks)
        for s in loop.body:
            match s:
                case Reduce():
                    self.reduced(s, self.filled(s, inner))
                case Scan():
                    self.scanned(s, inner)
                case _:
                    self.stmt(s, inner)

    def steps(self, loop: Loop, level: Level) -> None:
        """Runs RBLOCK points at a time. Folds accumulate lane by lane, and the lanes are combined at the end."""
        k, width = self.loops, self.rblock
        size = product_text((a.size for a in loop.axes), self.launch.sizes)
        self.hoist(loop, level)
        for s in loop.body:
            if isinstance(s, Reduce | Scan):
                self.start(s, self.shape(X | R if isinstance(s, Reduce) else X, width))
        self.enter(f"for off{k} in range(0, {size}, {width}):", loop)
        self.emit(f"r{k} = (off{k} + tl.arange(0, {width}))[None, :]{self.cast}")
        self.emit(f"r{k}_in = r{k} < {size}")
        self.spread(loop.axes, Var(f"r{k}", R, torch.int64))
        inner = Level(X | R, width, {**level.masks, "r": f"r{k}_in"})
        for s in loop.body:
            match s:
                case Reduce():
                    self.gather(s, inner, f"r{k}_in")
                case Scan():
                    self.carried(s, inner)
                case _:
                    self.stmt(s, inner)
        self.close()
        for s in loop.body:
            if isinstance(s, Reduce):
                self.reduced(s, _states(s))

    def serial(self, loop: Loop, level: Level) -> None:
        """Lets each lane run the loop by itself, point by point."""
        k, size = self.loops, length(loop)
        leaf = not any(isinstance(s, Loop) for s in loop.body)
        unroll = leaf and isinstance(size, int) and size <= UNROLLED and not self.cast
        self.hoist(loop, level)
        folds = [s for s in loop.body if isinstance(s, Reduce | Scan)]
        for s in folds:
            self.start(s, self.shape(level.dims, level.width))
        if size != 0:
            self.release(loop.axes)
            for axis in loop.axes:
                count, j = size_text(axis.size, self.launch.sizes), f"j{k}_{axis.name}"
                self.enter(f"for {j} in {'tl.static_range' if unroll else 'range'}({count}):", loop)
                if self.cast:
                    self.emit(f"{j} = tl.cast({j}, {self.cast[4:-1]})")
                self.axes[axis] = Var(j, NONE, torch.int64)
            for inner in loop.body:
                match inner:
                    case Reduce() | Scan():
                        self.gather(inner, level, "")
                        self.results(inner, _states(inner), level.dims)
                    case _:
                        self.stmt(inner, level)
            for _ in loop.axes:
                self.close()
        for s in folds:
            self.results(s, _states(s), level.dims)

    def hoist(self, loop: Loop, level: Level) -> None:
        """Prints invariant statements before the loop. Invariant loads are masked unless the loop has iterations."""
        runs = isinstance(length(loop), int) and length(loop) != 0
        stored = {s.buffer for s in walk(loop.body) if isinstance(s, Store)}
        own = {a for s in walk((loop,)) if isinstance(s, Loop) for a in s.axes}
        for axis in sorted({a for i in indices(loop.body) for a in axes_of(i)} - own, key=str):
            self.lookup(axis)
        varying = set[int]()
        for s in loop.body:
            same = varying.isdisjoint(reads((s,)))
            match s:
                case Const() | Apply():
                    pass
                case Check():
                    same = same and runs
                case Position() | Load():
                    same = same and axes_of(s.index).isdisjoint(loop.axes)
                    same = same and (isinstance(s, Position) or (runs and s.buffer not in stored))
                case _:
                    same = False
            if same:
                self.stmt(s, level)
            else:
                varying |= {r for t in walk((s,)) for r in results_of(t)}

    def enter(self, head: str, loop: Loop) -> None:
        """Opens a loop whose iterations run one after the other, without barriers between lanes."""
        for buffer in {s.buffer for s in walk(loop.body) if isinstance(s, Store)}:
            self.forget(self.launch.names[buffer])
        self.open(head)
        if crosses_lanes(loop):
            self.barrier()

    # -- folds -----------------------------------------------------------------------------------------

    def combiner(self, s: Reduce | Scan) -> str:
        """The name of the function that combines two states."""
        called = name(s.monoid, s.dtypes)
        self.helpers.setdefault(called, function(s.monoid, s.dtypes))
        return called

    def combine(self, s: Reduce | Scan, left: tuple[str, ...], right: tuple[str, ...]) -> str:
        if s.monoid not in REDUCTIONS:
            self.combiner(s)
        return combined(s.monoid, s.dtypes, left, right)

    def results(self, s: Reduce | Scan, names: tuple[str, ...], dims: frozenset[str]) -> None:
        for r, n, d in zip(s.results, names, s.dtypes, strict=True):
            self.values[r] = Var(n, dims, d)

    def start(self, s: Reduce | Scan, shape: str) -> None:
        for a, empty in zip(_states(s), identities(s.monoid, s.dtypes), strict=True):
            self.emit(f"{a} = {empty.replace('[]', shape, 1)}")

    def gather(self, s: Reduce | Scan, level: Level, mask: str) -> None:
        """Accumulates values into the states, lane by lane, where ``mask`` is true."""
        states = _states(s)
        values = self.full(s, level) if len(states) > 1 else tuple(self.values[a].text for a in s.args)
        text = self.combine(s, states, values)
        if not mask:
            self.emit(f"{', '.join(states)} = {text}")
        elif len(states) == 1:
            self.emit(f"{states[0]} = tl.where({mask}, {text}, {states[0]})")
        else:
            fresh = tuple(f"b{r}" for r in s.results)
            self.emit(f"{', '.join(fresh)} = {text}")
            for a, b in zip(states, fresh, strict=True):
                self.emit(f"{a} = tl.where({mask}, {b}, {a})")

    def full(self, s: Reduce | Scan, level: Level) -> tuple[str, ...]:
        """The folded values, one per point of the block."""
        return tuple(self.broadcast(self.values[a].text, self.values[a].dims, level) for a in s.args)

    def filled(self, s: Reduce, level: Level) -> tuple[str, ...]:
        """The folded values, with the identity in lanes outside the loop."""
        if "r" not in level.masks:
            return self.full(s, level)
        texts = []
        for a, empty in zip(s.args, identities(s.monoid, s.dtypes), strict=True):
            text = f"tl.where({level.masks['r']}, {self.values[a].text}, {empty})"
            texts.append(self.broadcast(text, self.values[a].dims | R, level))
        return tuple(texts)

    def broadcast(self, text: str, dims: frozenset[str], level: Level) -> str:
        if self.covers(dims, level.dims):
            return text
        return f"tl.broadcast_to({text}, {self.shape(level.dims, level.width)})"

    def reduced(self, s: Reduce, args: tuple[str, ...]) -> None:
        """Folds a block along r; the results are the rows'."""
        names = tuple(f"v{r}" for r in s.results)
        self.emit(f"{', '.join(names)} = {self.along('tl.reduce', s, args, ', keep_dims=True')}")
        self.results(s, names, X)

    def along(self, how: str, s: Reduce | Scan, args: tuple[str, ...], rest: str = "") -> str:
        if s.monoid == "sum" and how == "tl.reduce":  # tl.sum widens small integers
            narrow = not s.dtypes[0].is_floating_point and s.dtypes[0].itemsize < 4
            return f"tl.sum({args[0]}, 1{rest}){f'.to({DTYPES[s.dtypes[0]]})' if narrow else ''}"
        operand = args[0] if len(args) == 1 else f"({', '.join(args)})"
        return f"{how}({operand}, 1, {self.combiner(s)}{rest})"

    def scanned(self, s: Scan, level: Level) -> None:
        names = tuple(f"v{r}" for r in s.results)
        self.emit(f"{', '.join(names)} = {self.along('tl.associative_scan', s, self.full(s, level))}")
        self.results(s, names, level.dims)

    def carried(self, s: Scan, level: Level) -> None:
        """Scans a block after all blocks before it. Only the last block is not full, and its total is not used."""
        states, args = _states(s), self.full(s, level)
        inner, names, totals = (tuple(f"{c}{r}" for r in s.results) for c in "bvc")
        self.emit(f"{', '.join(inner)} = {self.along('tl.associative_scan', s, args)}")
        self.emit(f"{', '.join(names)} = {self.combine(s, states, inner)}")
        self.emit(f"{', '.join(totals)} = {self.along('tl.reduce', s, args, ', keep_dims=True')}")
        self.emit(f"{', '.join(states)} = {self.combine(s, states, totals)}")
        self.results(s, names, level.dims)


def _states(s: Reduce | Scan) -> tuple[str, ...]:
    return tuple(f"a{r}" for r in s.results)
