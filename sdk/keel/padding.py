"""Proves that a part may run at a larger size than it was called with: what is added changes no element of a result.

Inputs are padded with zeros to a larger value of a symbolic size, and the results are cut off. An element of a result
is the same at both sizes if the loop form of each call mentions the size only in the extents of its results: then it is
computed from the same elements by the same formula, whatever the size is. A sum along the size has it as the extent of
a loop, a mean divides by it, a flip subtracts from it, and a concatenation compares with it. All these are refused, and
so is what could fail for the zeros: an integer division, and an index that is computed.

An input that is expanded along the size, with stride 0, is padded with the element that it repeats. The proof is about
one size at a time, and about calls whose results have the shapes that the graph promises. Whether the graph may have
some sizes at all, for instance a slice up to one size of another, is for ``fits_its_types`` of
``keel.graph.static_sizes`` to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from keel.graph.calls import call_of, type_of
from keel.graph.decompose import decompose_call
from keel.graph.purity import draws_nothing
from keel.loops.builder import CheckedIndex, LoopDefinition, Read
from keel.loops.index import Axis, Div, Index, Loaded, Mod, index
from keel.loops.intervals import DIVISIONS, INTERVALS, Interval
from keel.loops.ir import Apply, Const, Position, Reduce, Scan
from keel.loops.lower import lower
from keel.loops.symbolic_sizes import evaluate, non_negative
from keel.plugin import SizeRange
from keel.runtime.result_casts import with_strides
from keel.spec.opset import decomposition_of
from keel.symbols import HostNumbers
from keel.torch_adapter import NotRecorded, fake_mode_of_value, has_effect, is_overload, is_random
from keel.types import Call, Dim, SymType, TensorType, leaves, symbols_of

ZERO: Interval = (0, 0)


@dataclass(frozen=True)
class Behind:
    """What is known of the elements of a value that are behind the size: the ``interval`` that they are in; and whether
    the value is ``constant``, that is, the same all along the size, in front of it too. All elements, in front of it
    too, are at least 0 and less than ``below``, if that is known.
    """

    interval: Interval | None = None
    constant: bool = False
    below: Dim | None = None


def why_not_padded(gm: fx.GraphModule, symbol: str, sizes: Mapping[str, SizeRange]) -> str | None:
    """A sentence about the first call whose results would differ if the size ``symbol`` were larger, within its bounds
    in ``sizes``; None if there is no such call. A symbol that is not in ``sizes`` has no bounds.
    """
    proof = _Proof(symbol, sizes)
    return proof.why_not(gm.graph, {node: proof.behind_input(node) for node in gm.graph.find_nodes(op="placeholder")})


@dataclass(frozen=True)
class _Proof:
    """The proof for one graph and one size."""

    symbol: str
    sizes: Mapping[str, SizeRange]

    def behind_input(self, node: fx.Node) -> Behind:
        """What is known of an input: it is padded with zeros, or with the element that it repeats along the size."""
        type = type_of(node.meta["val"])
        dims = zip(type.shape, type.strides, strict=True) if isinstance(type, TensorType) else ()
        repeats = [step == 0 for n, step in dims if self.mentions(n)]
        return Behind(constant=all(repeats)) if any(repeats) else Behind(ZERO)

    def why_not(self, graph: fx.Graph, behind: dict[fx.Node, Behind]) -> str | None:
        """``behind`` says what is known of values; what is learned is added."""
        for node in graph.nodes:
            if node.op == "get_attr":
                return "It calls a graph of its own."
            call = call_of(node) if node.op == "call_function" else None
            if call is not None and (why := self.why_not_call(node, call, behind)) is not None:
                return f"{call.name} {why}"
        return None

    def why_not_call(self, node: fx.Node, call: Call, behind: dict[fx.Node, Behind]) -> str | None:
        if not any(map(self.mentions, leaves((*call.args, *call.kwargs.values(), *call.out)))):
            return None
        if is_random(call.op) and not draws_nothing(node):
            return "draws random numbers, of which a larger tensor takes more."
        if (has_effect(call.op) and not is_random(call.op)) or not is_overload(call.op):
            return "has an effect, or calls a graph of its own."
        if not all(_grows(dim) for t in call.out if isinstance(t, TensorType) for dim in t.shape):
            return "has a result that may be smaller where the size is larger."
        host = HostNumbers()
        definition = lower(call, host)
        if host.by_name:
            return "has sizes that kernels cannot compute."
        operands = [n for n in leaves([list(node.args), list(node.kwargs.values())]) if _is_tensor(n)]
        if not isinstance(definition, LoopDefinition):
            return self.why_not_pieces(node, call, [behind.get(n, Behind()) for n in _values(node)])
        tensors = list(zip(call.tensors, [behind.get(n, Behind()) for n in operands], strict=True))
        why, known = _Loops(self, definition, tensors).proved()
        if len(definition.outputs) == 1:
            behind[node] = known
        return why

    def why_not_pieces(self, node: fx.Node, call: Call, inputs: Sequence[Behind]) -> str | None:
        """Why the decomposition of a composite is not the same at a larger size."""
        decomposition = decomposition_of(call.op)
        if decomposition is None:
            return "has no loop form that says how it depends on the size."
        try:
            pieces = decompose_call(node, decomposition, fake_mode_of_value(node.meta["val"]))
        except NotRecorded:
            return "cannot be decomposed."
        placeholders = pieces.find_nodes(op="placeholder")
        why = self.why_not(pieces, dict(zip(placeholders, inputs, strict=True)))
        return None if why is None else f"is made of calls, of which {why}"

    def mentions(self, value: Any) -> bool:
        """True if a type, a size or a number depends on the size."""
        if isinstance(value, TensorType):
            return self.symbol in value.symbols
        expr = value.expr if isinstance(value, SymType) else value
        return isinstance(expr, sympy.Basic) and any(str(s) == self.symbol for s in expr.free_symbols)


@dataclass
class _Loops:
    """The proof for one loop form. ``operands`` are the types of its operands, and what is known of them."""

    proof: _Proof
    definition: LoopDefinition
    operands: Sequence[tuple[TensorType, Behind]]
    intervals: dict[int, Interval | None] = field(default_factory=dict)
    constant: set[int] = field(default_factory=set)
    below: dict[int, Dim | None] = field(default_factory=dict)

    def proved(self) -> tuple[str | None, Behind]:
        """Why the loop form is not the same at a larger size, if it is not; and what is known of its result."""
        mentions, definition = self.proof.mentions, self.definition
        if any(mentions(axis.size) for axis in definition.folded):
            return "reduces along the size.", Behind()
        if definition.kind == "scatter" and any(mentions(axis.size) for axis in definition.axes):
            return "scatters values along the size.", Behind()
        for step in definition.steps:
            if (why := self.fails(step)) is not None:
                return why, Behind()
            self.learn(step)
        update = definition.update
        if update is not None and any(mentions(d) for i in update.at for d in self.dims_of(i)):
            return "computes with the size.", Behind()
        if not definition.outputs:
            return None, Behind()
        result = definition.outputs[0]
        return None, Behind(self.intervals.get(result), result in self.constant, self.below.get(result))

    def fails(self, step: Any) -> str | None:
        """Why a step is not the same at a larger size, or may fail for what is behind the size."""
        if any(self.proof.mentions(d) for i in _indices(step) for d in self.dims_of(i)):
            return "computes with the size."
        match step:
            case CheckedIndex(value=value, bound=bound) if self.below.get(value) != bound:
                if self.proof.mentions(bound):
                    return "computes with the size."
                if value not in self.constant and not self.is_within(step):
                    return "reads at a computed index, which may be out of range behind the size."
            case Apply(op=op, args=args) if op in DIVISIONS and not step.dtype.is_floating_point:
                divisor = self.intervals.get(args[-1])
                if args[-1] not in self.constant and (divisor is None or divisor[0] <= 0 <= divisor[1]):
                    return "divides integers, which may fail behind the size."
        return None

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
            not self.along(i) or (known.constant and self.proof.mentions(size))
            for i, size in zip(step.at, type.shape, strict=True)
        ) and (known.constant or not self.proof.mentions(type))

    def is_behind(self, at: Sequence[Index], type: TensorType) -> bool:
        """True if the elements of the result that are behind the size read elements of the operand that are, too: one
        axis of the result runs along the size, and it is a coordinate of the operand, in a dimension of the same size.
        """
        growing = [axis for axis in self.definition.axes if self.proof.mentions(axis.size)]
        return len(growing) == 1 and any(
            coordinate == index(growing[0]) and size == growing[0].size
            for coordinate, size in zip(at, type.shape, strict=True)
        )

    def along(self, i: Index) -> bool:
        """True if an index depends on where along the size it is."""
        for atom, _ in i.terms:
            match atom:
                case Axis(size=size) if self.proof.mentions(size):
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

    def dims_of(self, i: Index) -> Iterator[Dim]:
        """The sizes that an index is computed with, without the extents of its axes, which are the result's, and
        without the bounds of what is below them for any size.
        """
        yield i.const
        for atom, coefficient in i.terms:
            yield coefficient
            match atom:
                case Div(of=of, by=by) | Mod(of=of, by=by):
                    yield by
                    yield from self.dims_of(of)
                case Loaded(value=value, bound=bound) if self.below.get(value) != bound:
                    yield bound

    def reach(self, i: Index) -> Interval | None:
        """The values of an index over the largest extents of its axes."""
        if not isinstance(i.const, int):
            return None
        low = high = i.const
        for atom, coefficient in i.terms:
            if not isinstance(atom, Axis) or not isinstance(coefficient, int):
                return None
            if (size := _largest(atom.size, self.proof.sizes)) is None:
                return None
            ends = (0, coefficient * max(size - 1, 0))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def is_within(self, step: CheckedIndex) -> bool:
        """True if all values behind the size are indices below the bound of a check."""
        interval, bound = self.intervals.get(step.value), _smallest(step.bound, self.proof.sizes)
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
    return evaluate(size, ends) if ends.keys() >= set(symbols_of([size])) and _grows(size) else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _values(node: fx.Node) -> list[fx.Node]:
    """The operands that a decomposition has placeholders for, in order."""
    return [n for n in leaves([list(node.args), list(node.kwargs.values())]) if isinstance(n, fx.Node)]


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


def _grows(dim: Any) -> bool:
    """True if it can be seen that a size is not smaller where its symbols are larger."""
    if isinstance(dim, int) or dim.is_number or dim.is_Symbol:
        return True
    if isinstance(dim, sympy.Add | sympy.Max | sympy.Min):
        return all(map(_grows, dim.args))
    if isinstance(dim, sympy.Mul):
        return all(_grows(a) and non_negative(a) for a in dim.args)
    if type(dim).__name__ in ("FloorDiv", "CleanDiv"):  # of PyTorch's symbolic language
        return _grows(dim.args[0]) and bool(dim.args[1].is_number and dim.args[1] > 0)
    return False


def padded(x: torch.Tensor, type: TensorType) -> torch.Tensor:
    """A tensor of a type of known sizes and strides, with ``x`` in the first elements of each dimension and 0
    elsewhere. Along a dimension with stride 0 all elements are the first one of ``x``.
    """
    once = [1 if step == 0 and n > 1 else n for n, step in zip(type.shape, type.strides, strict=True)]
    result = torch.empty_strided(once, type.strides, dtype=x.dtype, device=x.device).zero_()
    first = tuple(slice(0, min(n, m)) for n, m in zip(once, x.shape, strict=True))
    result[first].copy_(x[first])
    return result.expand(type.shape)


def cut(x: torch.Tensor, type: TensorType) -> torch.Tensor:
    """The first elements of each dimension of ``x``, in a tensor of a type of known sizes and strides."""
    return with_strides(x[tuple(slice(0, n) for n in type.shape)], type.strides)
