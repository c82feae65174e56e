"""The reference semantics of the loop IR: an interpreter that runs a kernel with torch on the CPU, vectorized.

Each axis of the loops around a statement is a tensor dimension, and each value a tensor over them (of size 1 along an
axis that it does not depend on).  A load is a gather, a store a scatter, a reduce loop a fold over the dimensions of
its axes.  Parallel and reduce loops run in slices, so that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from torch import Tensor

from keel.errors import KeelError
from keel.loops.index import Axis, Div, Index, Loaded, Mod
from keel.loops.ir import Apply, Check, Const, Kernel, Load, Loop, Position, Reduce, Scan, Stmt, Store, StoreMode
from keel.loops.scalar_semantics import WIDE_UNSIGNED, evaluate_op
from keel.loops.symbolic_sizes import evaluate
from keel.loops.torch_monoids import fold, identity, scan
from keel.types import Dim

POINTS = 1 << 17
"""The number of loop points that are computed at once, if the loops allow it: a value in f32 then fits in a cache."""

_CELLS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}  # to move bits
_SCATTERS = {"min": "amin", "max": "amax", "mul": "prod"}


def interpret(kernel: Kernel, buffers: Sequence[Tensor], symbols: Mapping[str, int], *, precise: bool = False) -> None:
    """Runs ``kernel``, which ``verify`` accepts, and writes its out buffers in place.

    ``buffers`` are CPU tensors, one per buffer of the kernel, whose elements are counted from ``data_ptr()`` whatever
    their strides; ``symbols`` gives each symbol's value. ``precise`` computes every float in float64, rounding only
    where it is stored. Raises KeelError[bad-graph] for an index outside its buffer. A Check records its failures and
    does not raise.
    """
    memory: dict[str, Tensor] = {}
    for buffer, tensor in zip(kernel.buffers, buffers, strict=True):
        if tensor.dtype != buffer.dtype:
            raise KeelError("bad-graph", f"{buffer.name} of {kernel.name} takes {buffer.dtype}, not {tensor.dtype}.")
        size = max(evaluate(buffer.size, symbols), 0)  # the extent of an empty buffer may be negative
        memory[buffer.name] = tensor.detach().as_strided((size,), (1,), tensor.storage_offset())
    stores = {memory[b.name].untyped_storage().data_ptr() for b in kernel.buffers if b.role != "in"}
    written = frozenset(name for name, m in memory.items() if m.untyped_storage().data_ptr() in stores)
    _Run(kernel, memory, written, symbols, precise).block(kernel.body, None)


@dataclass(frozen=True)
class _Range:
    """The slice of an axis that is currently run."""

    axis: Axis
    start: int
    size: int


@dataclass
class _Run:
    kernel: Kernel
    memory: Mapping[str, Tensor]
    written: frozenset[str]  # buffers in storage that the kernel writes
    symbols: Mapping[str, int]
    precise: bool
    ranges: tuple[_Range, ...] = ()  # of the loops around, outermost first: the dimensions
    values: dict[int, Tensor] = field(default_factory=dict)  # each of the rank of its block
    dtypes: dict[int, torch.dtype] = field(default_factory=dict)  # as the kernel states them

    # -- loops ---------------------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...], loop: Loop | None) -> dict[int, Tensor]:
        """Runs the statements over the current ranges; returns the results of the Reduce statements among them."""
        folded: dict[int, Tensor] = {}
        for stmt in body:
            match stmt:
                case Loop(kind="reduce"):
                    results = self.reduce(stmt)
                    self.values |= results
                case Loop():
                    self.each(stmt)
                case Reduce():
                    assert loop is not None
                    states = [self.over(self.value(a), len(loop.axes)) for a in stmt.args]
                    states = [s.flatten(len(self.ranges) - len(loop.axes)) for s in states]
                    folded |= zip(stmt.results, fold(stmt.monoid, states), strict=True)
                case Scan():
                    running = scan(stmt.monoid, [self.over(self.value(a), 1) for a in stmt.args])
                    self.values |= zip(stmt.results, running, strict=True)
                case Store():
                    self.store(stmt)
                case Const() | Position() | Load() | Check() | Apply():
                    self.values[stmt.result] = self.computed(stmt)
        return folded

    def each(self, loop: Loop) -> None:
        outer, values = self.ranges, self.values
        slices = self.slices(loop) if loop.kind == "parallel" else [self.full_ranges(loop)]
        for part in slices:
            if all(r.size for r in part):
                self.ranges, self.values = outer + part, dict(values)
                self.block(loop.body, loop)
        self.ranges, self.values = outer, values

    def reduce(self, loop: Loop) -> dict[int, Tensor]:
        outer, values = self.ranges, self.values
        parts: list[dict[int, Tensor]] = []
        for part in self.slices(loop):
            if all(r.size for r in part):
                self.ranges, self.values = outer + part, dict(values)
                parts.append(self.block(loop.body, loop))
        self.ranges, self.values = outer, values
        results: dict[int, Tensor] = {}
        for stmt in (s for s in loop.body if isinstance(s, Reduce)):
            if parts:
                total = fold(stmt.monoid, [torch.stack([p[r] for p in parts], -1) for r in stmt.results])
            else:
                total = identity(stmt.monoid, tuple(self.wide(d) for d in stmt.dtypes), (1,) * len(outer))
            results |= zip(stmt.results, total, strict=True)
        return results

    def full_ranges(self, loop: Loop) -> tuple[_Range, ...]:
        return tuple(_Range(a, 0, self.size(a.size)) for a in loop.axes)

    def slices(self, loop: Loop) -> Iterator[tuple[_Range, ...]]:
        """Splits the loop's points, in order, into slices that make about POINTS points together with the loops around
        and inside.
        """
        inside = prod(r.size for r in self.ranges) * self.points(loop.body)
        return _slices(self.full_ranges(loop), inside)

    def points(self, body: tuple[Stmt, ...]) -> int:
        """How many points the largest loop nest of ``body`` has."""
        return max(
            (prod(self.size(a.size) for a in s.axes) * self.points(s.body) for s in body if isinstance(s, Loop)),
            default=1,
        )

    # -- values --------------------------------------------------------------------------------------

    def computed(self, stmt: Const | Position | Load | Check | Apply) -> Tensor:
        match stmt:
            case Const():
                self.dtypes[stmt.result] = stmt.dtype
                return torch.tensor(stmt.value, dtype=self.wide(stmt.dtype)).reshape((1,) * len(self.ranges))
            case Position():
                return self.at(stmt.index)
            case Load():
                return self.load(stmt)
            case Check():
                return self.check(stmt)
            case Apply():
                return self.apply(stmt)

    def apply(self, stmt: Apply) -> Tensor:
        args = tuple(self.value(a) for a in stmt.args)
        if self.precise and stmt.op in (
            "bitcast",
            "nextafter",
        ):  # these read bits of its own dtype
            rounded = tuple(a.to(self.dtypes.get(n, a.dtype)) for n, a in zip(stmt.args, args, strict=True))
            result = evaluate_op(stmt.op, rounded, stmt.dtype).to(self.wide(stmt.dtype))
        else:
            result = evaluate_op(stmt.op, args, self.wide(stmt.dtype))
        self.dtypes[stmt.result] = stmt.dtype
        return result

    def value(self, number: int) -> Tensor:
        """The value over the current ranges."""
        value = self.values[number]
        return value.reshape(value.shape + (1,) * (len(self.ranges) - value.dim()))

    def over(self, value: Tensor, axes: int) -> Tensor:
        """``value`` with one element for each point of the innermost ``axes`` axes."""
        sizes = [r.size for r in self.ranges[len(self.ranges) - axes :]]
        return value.expand(*value.shape[: len(self.ranges) - axes], *sizes)

    def wide(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float64 if self.precise and dtype.is_floating_point else dtype

    def size(self, d: Dim) -> int:
        return evaluate(d, self.symbols)

    # -- indices -------------------------------------------------------------------------------------

    def at(self, i: Index) -> Tensor:
        """The index at every point of the ranges that it depends on, int64."""
        total = torch.tensor(self.size(i.const)).reshape((1,) * len(self.ranges))
        for atom, c in i.terms:
            match atom:
                case Axis():
                    here = self.positions(atom)
                case Loaded():
                    here = self.value(atom.value).to(torch.int64)
                case Div():
                    here = self.at(atom.of).div(self.size(atom.by), rounding_mode="floor")
                case Mod():
                    here = self.at(atom.of).remainder(self.size(atom.by))
            total = total + here * self.size(c)
        return total

    def dimension(self, axis: Axis) -> int:
        return next(n for n, r in enumerate(self.ranges) if r.axis == axis)

    def positions(self, axis: Axis) -> Tensor:
        n = self.dimension(axis)
        shape = [1] * len(self.ranges)
        shape[n] = self.ranges[n].size
        return torch.arange(self.ranges[n].start, self.ranges[n].start + shape[n]).reshape(shape)

    def strided(self, i: Index, memory: Tensor, stmt: Load | Store) -> Tensor | None:
        """``memory`` as a view over the ranges, of size 1 along those that ``i`` leaves out; returns None if no such
        view exists.
        """
        offset = self.size(i.const)
        sizes, strides = [1] * len(self.ranges), [0] * len(self.ranges)
        for atom, c in i.terms:
            if not isinstance(atom, Axis) or (stride := self.size(c)) < 0:
                return None
            n = self.dimension(atom)
            sizes[n], strides[n] = self.ranges[n].size, stride
            offset += stride * self.ranges[n].start
        self.within(offset, offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)), memory, stmt)
        return memory.as_strided(sizes, strides, memory.storage_offset() + offset)

    def within(self, low: int, high: int, memory: Tensor, stmt: Load | Store) -> None:
        if low < 0 or high >= len(memory):
            worst = low if low < 0 else high
            raise KeelError(
                "bad-graph",
                f"Kernel {self.kernel.name} addresses element {worst} of {stmt.buffer}, "
                f"which has {len(memory)}: {stmt.buffer}[{stmt.index}].",
            )

    def check(self, stmt: Check) -> Tensor:
        value, bound = self.value(stmt.value), self.size(stmt.bound)
        place = torch.where(value < 0, value + bound, value) if stmt.wrap else value
        outside = (place < 0) | (place >= bound)
        wrong = outside if stmt.mask is None else outside & self.value(stmt.mask)
        if wrong.any():
            first = int(value.expand(wrong.shape)[wrong][0])
            self.memory[stmt.buffer][stmt.site] = first if first < 0 else first + 1
        return torch.where(outside, 0, place)

    # -- memory --------------------------------------------------------------------------------------

    def load(self, stmt: Load) -> Tensor:
        memory = self.memory[stmt.buffer]
        self.dtypes[stmt.result] = stmt.dtype
        view = self.strided(stmt.index, memory, stmt) if stmt.mask is None else None
        if view is not None:
            held = view.clone() if stmt.buffer in self.written else view
        else:
            held = self.gathered(stmt, memory).view(stmt.dtype)
        return held.to(self.wide(stmt.dtype))

    def gathered(self, stmt: Load, memory: Tensor) -> Tensor:
        """The loaded elements as cells of their width; zero where the mask is false."""
        cells, where = memory.view(_CELLS[memory.dtype.itemsize]), self.at(stmt.index)
        if stmt.mask is None:
            self.within(int(where.min()), int(where.max()), memory, stmt)
            return cells[where]
        mask = self.value(stmt.mask)
        safe = torch.where(mask, where, 0)
        if not mask.any():
            return torch.zeros(safe.shape, dtype=cells.dtype)
        self.within(int(safe.min()), int(safe.max()), memory, stmt)
        return torch.where(mask, cells[safe], 0)

    def store(self, stmt: Store) -> None:
        memory = self.memory[stmt.buffer]
        value = self.value(stmt.value).to(memory.dtype)
        if stmt.mode == "write" and stmt.mask is None:
            view = self.strided(stmt.index, memory, stmt)
            if view is not None and _distinct(view) and _fits(value, view):
                view.copy_(value)
                return
        where = self.at(stmt.index)
        mask = None if stmt.mask is None else self.value(stmt.mask)
        shapes = (where.shape, value.shape, () if mask is None else mask.shape)
        shape: torch.Size = torch.broadcast_shapes(*shapes)
        if stmt.mode != "write":  # equal points count separately
            shape = torch.Size(r.size for r in self.ranges)
        chosen = ... if mask is None else mask.expand(shape)
        where, value = where.expand(shape)[chosen].flatten(), value.expand(shape)[chosen].flatten()
        if len(where):
            self.within(int(where.min()), int(where.max()), memory, stmt)
            _scatter(memory, where, value, stmt.mode)


def _slices(ranges: tuple[_Range, ...], inside: int) -> Iterator[tuple[_Range, ...]]:
    if not ranges:
        yield ()
        return
    first, rest = ranges[0], ranges[1:]
    under = inside * prod(r.size for r in rest)
    step = max(1, POINTS // max(1, under))
    for start in range(0, max(1, first.size), step):
        part = _Range(first.axis, start, min(step, first.size - start))
        if under <= POINTS:
            yield (part, *rest)
        else:
            yield from ((part, *tail) for tail in _slices(rest, inside))


def _distinct(view: Tensor) -> bool:
    """True if the strides prove that no two elements share memory."""
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(view.stride(), view.shape, strict=True) if n > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _fits(value: Tensor, view: Tensor) -> bool:
    """True if the value is constant along the dimensions that the view lacks."""
    return all(v in (1, n) for v, n in zip(value.shape, view.shape, strict=True))


def _scatter(memory: Tensor, where: Tensor, value: Tensor, mode: StoreMode) -> None:
    """Writes to one-dimensional memory. Values at equal places are written in any order, or combined by ``mode``."""
    if memory.dtype in WIDE_UNSIGNED and mode in ("mul", "min", "max"):
        rule = {"mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
        rule.at(memory.numpy(), where.numpy(), value.numpy())
    elif mode in ("write", "add"):
        cell = _CELLS[memory.dtype.itemsize] if mode == "write" or memory.dtype in WIDE_UNSIGNED else memory.dtype
        memory.view(cell).index_put_((where,), value.view(cell), accumulate=mode == "add")
    else:
        memory.scatter_reduce_(0, where, value, _SCATTERS[mode], include_self=True)
