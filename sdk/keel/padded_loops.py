"""The proof that a loop form computes the same elements if a size is larger, and what it computes behind the size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from keel.loops.builder import CheckedIndex, LoopDefinition, Read
from keel.loops.growing_index import Blocks, GrowingIndex, blocks_of_axes
from keel.loops.index import Axis, Div, Index, Loaded, Mod, index, lone_atom
from keel.loops.intervals import DIVISIONS, INTERVALS, Interval
from keel.loops.ir import Apply, Const, Position, Reduce, Scan
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_semantics import evaluate_op
from keel.loops.symbolic_sizes import evaluate, non_negative
from keel.plugin import SizeRange
from keel.types import Dim, TensorType, symbols_of

ZERO: Interval = (0, 0)
COMPUTES = "computes with the size."


@dataclass(frozen=True)
class Behind:
    """What is known of the elements of a value that are behind the size: the ``interval`` that they are in; and whether
    the value is ``constant``, that is, the same all along the size, in front of it too. All elements, in front of it
    too, are at least 0 and less than ``below``, if that is known. ``blocks`` has for each dimension the size of its
    blocks (see ``GrowingIndex``), and is empty if no dimension has blocks.
    """

    interval: Interval | None = None
    constant: bool = False
    below: Dim | None = None
    blocks: Blocks = ()


@dataclass(frozen=True)
class Fill:
    """A ``value`` that the elements of an operand have to have behind the size, along the dimension ``dim``, so that
    its call can be padded. The dimension has blocks of the size ``block``, if that is not None.
    """

    operand: int
    dim: int
    value: bool | int | float
    block: Dim | None


@dataclass
class LoopProof:
    """The proof for one loop form. ``mentions`` says whether a size or a type depends on the size that grows, and
    ``sizes`` has the bounds of sizes. ``operands`` are the types of its operands, and what is known of them. With
    ``fills``, it may assume that operands are filled, and collects with what.
    """

    mentions: Callable[[Any], bool]
    sizes: Mapping[str, SizeRange]
    definition: LoopDefinition
    operands: Sequence[tuple[TensorType, Behind]]
    fills: dict[tuple[int, int], Fill] | None = None
    intervals: dict[int, Interval | None] = field(default_factory=dict)
    constant: set[int] = field(default_factory=set)
    below: dict[int, Dim | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reads = [step for step in self.definition.steps if isinstance(step, Read)]
        blocks = blocks_of_axes([(r.at, self.operands[r.operand][1].blocks) for r in reads], self.mentions)
        self.growing = GrowingIndex(self.mentions, blocks, self.below)

    def why_not(self) -> str | None:
        """Why the loop form is not the same at a larger size; None if it is the same."""
        mentions, definition = self.mentions, self.definition
        if not all(self.may_fold(axis) for axis in definition.folded if mentions(axis.size)):
            return "reduces along the size."
        if definition.scanned in self.growing.blocks:
            return "scans a dimension that is made of several."
        for step in definition.steps:
            if (why := self.fails(step)) is not None:
                return why
            self.learn(step)
        update = definition.update
        if update is None:
            return None
        if any(mentions(axis.size) for axis in definition.axes):
            return "scatters values along the size."
        if any(self.operands[definition.base or 0][1].blocks) or not all(map(self.growing.is_same, update.at)):
            return COMPUTES
        return None

    def results(self, types: Sequence[Any]) -> tuple[Behind, ...]:
        """What is known of the results, which have these types."""
        definition = self.definition
        blocks = tuple(self.growing.blocks.get(axis) for axis in definition.axes)
        outputs = definition.outputs if definition.update is None else (-1,) * len(types)
        return tuple(
            Behind(self.intervals.get(n), n in self.constant, self.below.get(n), blocks if any(blocks) else ())
            for n in outputs
        )

    def fails(self, step: Any) -> str | None:
        """Why a step is not the same at a larger size, or may fail for what is behind the size."""
        match step:
            case Read(at=at):
                blocks = self.operands[step.operand][1].blocks or (None,) * len(at)
                if not all(map(self.growing.is_at, at, blocks)):
                    return COMPUTES
            case Position(index=i) if not self.growing.is_same(i):
                return COMPUTES
            case CheckedIndex(value=value, bound=bound) if self.below.get(value) != bound:
                if self.mentions(bound):
                    return COMPUTES
                if value not in self.constant and not self.is_within(step) and not self.may_check(step):
                    return "reads at a computed index, which may be out of range behind the size."
            case Apply(op=op, args=args) if op in DIVISIONS and not step.dtype.is_floating_point:
                divisor = self.intervals.get(args[-1])
                unknown = args[-1] not in self.constant and (divisor is None or divisor[0] <= 0 <= divisor[1])
                if unknown and not self.may_divide(args[-1]):
                    return "divides integers, which may fail behind the size."
        return None

    def may_fold(self, axis: Axis) -> bool:
        """True if operands can be filled along an axis so that what is behind the size adds nothing to a reduction."""
        fold = next(step for step in self.definition.steps if isinstance(step, Reduce))
        identity = MONOIDS[fold.monoid].identity(fold.dtypes)
        reads = [r for r in self.reads_of(fold.args) if any(_has(i, axis) for i in r.at)]
        for value in dict.fromkeys((*identity, 0, 1)):
            values = self.values({r.result: value for r in reads})
            if [values.get(a) for a in fold.args] == [*identity]:
                return self.fill(reads, value, axis)
        return False

    def may_check(self, step: CheckedIndex) -> bool:
        """True if operands can be filled so that an index behind the size is within its bound."""
        reads, bound = self.reads_of([step.value]), _smallest(step.bound, self.sizes)
        index_behind = self.values({r.result: 0 for r in reads}).get(step.value)
        return bound is not None and index_behind is not None and 0 <= index_behind < bound and self.fill(reads, 0)

    def may_divide(self, divisor: int) -> bool:
        """True if operands can be filled so that a divisor behind the size is not 0."""
        reads = self.reads_of([divisor])
        return bool(self.values({r.result: 1 for r in reads}).get(divisor)) and self.fill(reads, 1)

    def reads_of(self, numbers: Sequence[int]) -> list[Read]:
        """The reads that values are computed from, as far as they read along the size."""
        steps = {step.result: step for step in self.definition.steps if not isinstance(step, Reduce | Scan)}
        reads, waiting, visited = list[Read](), [*numbers], set[int]()
        while waiting:
            number = waiting.pop()
            step = steps.get(number)
            if step is None or number in visited:
                continue
            visited.add(number)
            if isinstance(step, Read) and any(map(self.along, step.at)):
                reads.append(step)
            waiting += _arguments(step)
        return reads

    def values(self, of_reads: Mapping[int, bool | int | float]) -> dict[int, bool | int | float]:
        """The values of the steps that can be computed from these values of reads, and from constants."""
        values: dict[int, torch.Tensor] = {}
        for step in self.definition.steps:
            match step:
                case Read(result=number) if number in of_reads and _can_hold(step.dtype, of_reads[number]):
                    values[number] = torch.tensor(of_reads[number], dtype=step.dtype, device="cpu")
                case Const(result=number, value=value):
                    values[number] = torch.tensor(value, dtype=step.dtype, device="cpu")
                case Apply(result=number, args=args) if all(a in values for a in args):
                    values[number] = evaluate_op(step.op, tuple(values[a] for a in args), step.dtype)
        return {number: value.item() for number, value in values.items()}

    def fill(self, reads: Sequence[Read], value: bool | int | float, along: Axis | None = None) -> bool:
        """Notes that operands have to be filled where these reads are behind the size ``along`` an axis, or along any.
        False if they cannot be.
        """
        if self.fills is None or not reads:
            return False
        for read in reads:
            type, known = self.operands[read.operand]
            for dim, i in enumerate(read.at):
                axis = lone_atom(i)
                if not self.along(i) or (along is not None and not _has(i, along)):
                    continue
                if read.mask is not None or not isinstance(axis, Axis) or axis.size != type.shape[dim]:
                    return False
                fill = Fill(read.operand, dim, value, known.blocks[dim] if known.blocks else None)
                if any(other.value != value for (n, _), other in self.fills.items() if n == read.operand):
                    return False  # an element may be behind the size along two dimensions
                self.fills[read.operand, dim] = fill
        return True

    def learn(self, step: Any) -> None:
        """Notes what is known of the value of a step."""
        match step:
            case Read():
                type, known = self.operands[step.operand]
                if self.is_constant(step, type, known):
                    self.constant.add(step.result)
                if step.mask is None:
                    self.below[step.result] = known.below
                    self.intervals[step.result] = known.interval if self.is_behind(step.at, type) else None
            case Reduce() | Scan():
                pass
            case _:
                if all(a in self.constant for a in _arguments(step)) and not any(map(self.along, _indices(step))):
                    self.constant.add(step.result)
                self.intervals[step.result] = self.interval(step)
                self.below[step.result] = self.below_of(step)

    def is_constant(self, step: Read, type: TensorType, known: Behind) -> bool:
        """True if a read is of the same element wherever along the size the result's element is, or of an equal one."""
        if step.mask is not None and step.mask not in self.constant:
            return False
        return all(
            not self.along(i) or (known.constant and self.mentions(size))
            for i, size in zip(step.at, type.shape, strict=True)
        ) and (known.constant or not self.mentions(type))

    def is_behind(self, at: Sequence[Index], type: TensorType) -> bool:
        """True if the elements of the result that are behind the size read elements of the operand that are, too: one
        axis of the result runs along the size, and it is a coordinate of the operand, in a dimension of the same size.
        """
        growing = [axis for axis in self.definition.axes if self.mentions(axis.size)]
        return len(growing) == 1 and any(
            coordinate == index(growing[0]) and size == growing[0].size
            for coordinate, size in zip(at, type.shape, strict=True)
        )

    def along(self, i: Index) -> bool:
        """True if an index depends on where along the size it is."""
        for atom, _ in i.terms:
            match atom:
                case Axis(size=size) if self.mentions(size):
                    return True
                case Loaded(value=value) if value not in self.constant:
                    return True
                case Div(of=of) | Mod(of=of) if self.along(of):
                    return True
        return False

    def interval(self, step: Any) -> Interval | None:
        """The interval of a step, from those of its operands. Floats may round, but 0 is 0."""
        interval: Interval | None = None
        match step:
            case Const(value=value):
                interval = (int(value), int(value)) if math.isfinite(value) and value == int(value) else None
            case Position():
                interval = self.reach(step.index)
            case Apply() if step.op in INTERVALS:
                known = [each for a in step.args if (each := self.intervals.get(a)) is not None]
                interval = INTERVALS[step.op](*known) if len(known) == len(step.args) else None
        return interval if not step.dtype.is_floating_point or interval == ZERO else None

    def below_of(self, step: Any) -> Dim | None:
        """What all elements of a step are less than, while they are at least 0."""
        match step:
            case Position(index=Index(const=0, terms=((Axis(size=size), 1),))):
                return size
            case Apply(op="cast", args=(value,)) if step.dtype in (torch.int32, torch.int64):
                return self.below.get(value)
            case CheckedIndex(value=value):
                return self.below.get(value)
        return None

    def reach(self, i: Index) -> Interval | None:
        """The values of an index over the largest extents of its axes."""
        if not isinstance(i.const, int):
            return None
        low = high = i.const
        for atom, coefficient in i.terms:
            if not isinstance(atom, Axis) or not isinstance(coefficient, int):
                return None
            if (size := _largest(atom.size, self.sizes)) is None:
                return None
            ends = (0, coefficient * max(size - 1, 0))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def is_within(self, step: CheckedIndex) -> bool:
        """True if all values behind the size are indices below the bound of a check."""
        interval, bound = self.intervals.get(step.value), _smallest(step.bound, self.sizes)
        if interval is None or bound is None or max(map(abs, interval)) >= SMALL:
            return False
        return (-bound if step.wrap else 0) <= interval[0] and interval[1] < bound


SMALL = 2**24
"""Integers below this are the same in all dtypes that hold indices but the 8-bit and 16-bit ones."""


def _largest(size: Dim, sizes: Mapping[str, SizeRange]) -> int | None:
    """The largest value of a size that grows with its symbols; None if it has no bound."""
    ends = {str(s): known.high for s in symbols_of([size]) if (known := sizes.get(s)) is not None}
    return _at(size, {name: end for name, end in ends.items() if end is not None})


def _smallest(size: Dim, sizes: Mapping[str, SizeRange]) -> int | None:
    """The smallest value of a size that grows with its symbols; None if it has no bound."""
    return _at(size, {s: sizes[s].low for s in symbols_of([size]) if s in sizes})


def _at(size: Dim, ends: Mapping[str, int]) -> int | None:
    return evaluate(size, ends) if ends.keys() >= set(symbols_of([size])) and grows(size) else None


def _has(i: Index, axis: Axis) -> bool:
    """True if an index depends on an axis."""
    return any(atom == axis or (isinstance(atom, Div | Mod) and _has(atom.of, axis)) for atom, _ in i.terms)


def _can_hold(dtype: torch.dtype, value: bool | int | float) -> bool:
    """True if a number has a value of this dtype that equals it."""
    if dtype.is_floating_point:
        return True
    if isinstance(value, float) and not value.is_integer():
        return False
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return low <= value <= high


def _arguments(step: Any) -> tuple[int, ...]:
    """The numbers of the values that a step reads."""
    match step:
        case Apply(args=args):
            return args
        case CheckedIndex(value=value):
            return (value,)
    return ()


def _indices(step: Any) -> tuple[Index, ...]:
    """The indices that a step reads at, or computes."""
    match step:
        case Read(at=at):
            return at
        case Position(index=i):
            return (i,)
    return ()


def grows(dim: Any) -> bool:
    """True if it can be seen that a size is not smaller where its symbols are larger."""
    if isinstance(dim, int) or dim.is_number or dim.is_Symbol:
        return True
    if isinstance(dim, sympy.Add | sympy.Max | sympy.Min):
        return all(map(grows, dim.args))
    if isinstance(dim, sympy.Mul):
        return all(grows(a) and non_negative(a) for a in dim.args)
    if type(dim).__name__ in ("FloorDiv", "CleanDiv"):  # of PyTorch's symbolic language
        return grows(dim.args[0]) and bool(dim.args[1].is_number and dim.args[1] > 0)
    return False
