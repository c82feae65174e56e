"""Define-by-run lowering: a rule is a Python function that computes one element of an operator's result; tracing it
gives data.

A rule is called once per distinct Call with a ``Builder`` and an ``Operand`` for each tensor argument. It reads
operands at coordinates that are index expressions over the result's axes, computes with overloaded operators, and
returns the element (a tuple of elements for several results of one shape). The ``LoopDefinition`` that comes out is
what the scheduler inlines and fuses.

Three kinds: a map has one element per point of the result; a fold adds axes to reduce over; a scatter writes its
updates into a copy of its first read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass
from functools import partial, reduce
from itertools import takewhile
from typing import Any, Literal

import sympy
import torch

from keel.errors import KeelError
from keel.loops.index import Axis, Index, Loaded, flatten, index, loaded_bounds, unflatten
from keel.loops.ir import Apply, Const, Position, Reduce, Scan, StoreMode
from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS
from keel.loops.symbolic_sizes import canonicalize, is_positive
from keel.symbols import FloatOfBits
from keel.types import Call, Dim, SymType, TensorType, contiguous_strides

Number = bool | int | float
SMALL_FLOATS = frozenset(
    (
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    )
)


@dataclass(eq=False)
class NotLowerable(Exception):
    """Raised if a rule cannot express a call. ``sentence`` says why, with a full stop."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class Read:
    """The element of operand number ``operand`` at coordinates ``at``; zero where ``mask`` is false."""

    result: int
    operand: int
    at: tuple[Index, ...]
    dtype: torch.dtype
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One write of a scatter: into the result at coordinates ``at``."""

    at: tuple[Index, ...]
    value: int
    mode: StoreMode
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class CheckedIndex:
    """The int64 ``value`` as a coordinate below ``bound``, checked at run time where ``mask`` is true. With ``wrap``, a
    negative value counts from the end.
    """

    result: int
    value: int
    bound: Dim
    wrap: bool
    mask: int | None = None

    @property
    def dtype(self) -> torch.dtype:
        return torch.int64


Step = Const | Position | Read | CheckedIndex | Apply | Reduce | Scan


@dataclass(frozen=True, slots=True)
class LoopDefinition:
    """How one element of each output is computed.

    ``axes`` are the coordinates of the result, or of the updates of a scatter. ``folded`` are the axes that are reduced
    over, the last fastest. ``scanned`` is the axis that a scan runs along. Steps up to the Reduce are evaluated at
    (axes, folded), steps after it at axes alone. ``outputs`` has a value number for each tensor that the call returns.
    A scatter has ``update`` instead, which is written into operand number ``base``.
    """

    kind: Literal["map", "fold", "scan", "scatter"]
    axes: tuple[Axis, ...]
    folded: tuple[Axis, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    scanned: Axis | None = None
    update: Update | None = None
    base: int | None = None

    @property
    def is_view(self) -> bool:
        """True if each element of the result is an element of the operand, at any coordinates."""
        (first, *rest) = self.steps
        return self.kind == "map" and not rest and isinstance(first, Read) and first.mask is None

    @property
    def is_contraction(self) -> bool:
        """True if the loops sum products of elements of several operands, so that they read each element many times."""
        if self.kind != "fold":
            return False
        summed = takewhile(lambda s: not isinstance(s, Reduce), self.steps)
        return len({s.operand for s in summed if isinstance(s, Read)}) > 1


@dataclass(frozen=True, eq=False)
class Value:
    """A value of the definition under construction. Python operators on values append steps. Plain numbers take the
    other operand's dtype.
    """

    builder: Builder
    number: int
    dtype: torch.dtype

    def __add__(self, other: Value | Number) -> Value:
        return self.builder.apply("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return self.builder.apply("add", other, self)

    def __sub__(self, other: Value | Number) -> Value:
        return self.builder.apply("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self.builder.apply("sub", other, self)

    def __mul__(self, other: Value | Number) -> Value:
        return self.builder.apply("mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return self.builder.apply("mul", other, self)

    def __truediv__(self, other: Value | Number) -> Value:
        return self.builder.apply("div", self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return self.builder.apply("div", other, self)

    def __neg__(self) -> Value:
        return self.builder.apply("neg", self)

    def __and__(self, other: Value | Number) -> Value:
        return self.builder.apply("and", self, other)

    def __or__(self, other: Value | Number) -> Value:
        return self.builder.apply("or", self, other)

    def __invert__(self) -> Value:
        return self.builder.apply("not", self)

    def __lt__(self, other: Value | Number) -> Value:
        return self.builder.apply("lt", self, other)

    def __le__(self, other: Value | Number) -> Value:
        return self.builder.apply("le", self, other)

    def __gt__(self, other: Value | Number) -> Value:
        return self.builder.apply("gt", self, other)

    def __ge__(self, other: Value | Number) -> Value:
        return self.builder.apply("ge", self, other)

    def equals(self, other: Value | Number) -> Value:
        return self.builder.apply("eq", self, other)

    def to(self, dtype: torch.dtype) -> Value:
        return self.builder.cast(self, dtype)


@dataclass(frozen=True)
class Operand:
    """A tensor argument: its type, and its number among the call's tensors (``Call.tensors`` order)."""

    builder: Builder
    number: int
    type: TensorType

    def __getitem__(self, at: Sequence[Index | Dim]) -> Value:
        """The element at coordinates ``at``, one per dimension."""
        return self.builder.read(self, at)

    def where(self, mask: Value, at: Sequence[Index | Dim]) -> Value:
        """The element at ``at`` where ``mask`` is true, zero elsewhere. Coordinates may be out of bounds where ``mask``
        is false.
        """
        return self.builder.read(self, at, mask)


def _may_be_one(size: Dim) -> bool:
    """True if a size has an unbacked symbol.  Symbols of inputs are guarded and differ from 1."""
    return not isinstance(size, int) and any(not s.is_positive for s in size.free_symbols)


FOLDED: Mapping[str, Callable[..., Number]] = {
    "abs": abs,
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
"""Ops that are computed here where all operands are constants. They are exact, so they give what a kernel would."""


class Builder:
    """Collects the steps of one definition. Equal steps are merged."""

    def __init__(self, call: Call, shape: Iterable[Dim]):
        self.call = call
        self.shape = tuple(shape)
        self._axes = tuple(Axis(f"d{i}", canonicalize(n)) for i, n in enumerate(self.shape))
        self._folded: tuple[Axis, ...] = ()
        self._steps: list[Step] = []
        self._known: dict[Any, Value] = {}
        self._constants: dict[int, Number] = {}  # the values of those steps that are constants, in their dtype
        self._scanned: Axis | None = None
        self._kind: Literal["map", "fold", "scan", "scatter"] = "map"
        self._update: Update | None = None
        self._base: int | None = None

    # -- where we are ------------------------------------------------------------------------------

    @property
    def at(self) -> tuple[Index, ...]:
        """The coordinates of the element that is being computed."""
        return tuple(index(a) for a in self._axes)

    def fold_over(self, sizes: Iterable[Dim]) -> tuple[Index, ...]:
        """Declares the axes to reduce over, and returns their coordinates. A rule may call this once."""
        self._folded = tuple(Axis(f"f{i}", n) for i, n in enumerate(sizes))
        self._kind = "fold"
        return tuple(index(a) for a in self._folded)

    def updates_over(self, sizes: Iterable[Dim]) -> tuple[Index, ...]:
        """Makes the axes run over a scatter's updates, of shape ``sizes``, instead of over the result. Returns their
        coordinates.
        """
        self._axes = tuple(Axis(f"d{i}", n) for i, n in enumerate(sizes))
        return self.at

    # -- values ------------------------------------------------------------------------------------

    def const(self, value: Number, dtype: torch.dtype) -> Value:
        if dtype.is_floating_point:
            value = float(value)
        elif dtype == torch.bool:
            value = bool(value)
        elif dtype.is_complex and value != 0:
            raise NotLowerable(f"{self.call.name} makes the complex number {value}; loops have none but 0.")
        else:
            value = int(value)
        made = self._step(("const", repr(value), dtype), dtype, lambda n: Const(n, value, dtype))
        if dtype in (torch.bool, torch.float32, torch.float64):  # abs of an integer may overflow
            self._constants[made.number] = c_float(value).value if dtype == torch.float32 else value
        return made

    def number(self, value: Number | Dim | SymType, dtype: torch.dtype) -> Value:
        """A Python number or a symbolic integer as a value of the dtype."""
        if isinstance(value, SymType):
            value = value.expr
        if isinstance(value, bool | int | float):
            return self.const(value, dtype)
        if value.is_integer:
            return self.cast(self.position(index(value)), dtype)
        return self.cast(self.real(value), dtype)

    def real(self, value: sympy.Expr) -> Value:
        """A float as a float64 value: a number that the host computed, or a sum, product, ... of such numbers."""
        double = torch.float64
        match value:
            case sympy.Number() | sympy.NumberSymbol():
                return self.const(float(value), double)
            case FloatOfBits():
                return self.apply("bitcast", self.position(index(value.args[0])), dtype=double)
            case _ if value.is_integer:
                return self.cast(self.position(index(value)), double)
            case sympy.Add() | sympy.Mul():
                op = "add" if isinstance(value, sympy.Add) else "mul"
                return reduce(partial(self.apply, op), map(self.real, value.args))
            case sympy.Pow() if value.exp == -1:
                return self.apply("div", self.const(1.0, double), self.real(value.base))
        raise NotLowerable(f"{self.call.name} takes {value}, which is known only at run time and is not an integer.")

    def position(self, i: Index | Dim) -> Value:
        """An index as an int64 value."""
        i = index(i)
        return self._step(("position", i), torch.int64, lambda n: Position(n, i))

    def read(self, operand: Operand, at: Sequence[Index | Dim], mask: Value | None = None) -> Value:
        where = tuple(index(i) for i in at)
        if len(where) != operand.type.rank:
            raise KeelError("bad-graph", f"{self.call.name} reads {operand.type} at {len(where)} coordinates.")
        mask = self._in_any(where, mask)
        number = None if mask is None else mask.number
        dtype = operand.type.dtype
        return self._step(
            ("read", operand.number, where, number), dtype, lambda n: Read(n, operand.number, where, dtype, number)
        )

    def broadcast(self, operand: Operand, at: Sequence[Index] | None = None) -> Value:
        """The element of ``operand`` that broadcasting aligns with ``at`` (by default the result's coordinates). Raises
        NotLowerable if it is unknown until run time whether a size is 1 or the result's.
        """
        shape = operand.type.shape
        if at is None:
            at = self.at
            for n, size in zip(shape, (a.size for a in self._axes[len(at) - len(shape) :]), strict=True):
                if n not in (1, size) and _may_be_one(n) | _may_be_one(size):
                    raise NotLowerable(
                        f"{self.call.name} broadcasts the size {n} to {size}, and it is "
                        "unknown until run time whether one of them is 1."
                    )
        aligned = at[len(at) - len(shape) :]
        return self.read(operand, [0 if n == 1 else i for n, i in zip(shape, aligned, strict=True)])

    def apply(self, op: str, *args: Value | Number, dtype: torch.dtype | None = None) -> Value:
        """Appends a scalar op. Plain numbers take the dtype of the first value among ``args`` (of the last for
        ``where``). A choice by a constant is what it chooses, and a comparison of constants is a constant: compilers
        may leave such a choice in a loop, which they do not vectorize then.
        """
        values = [a for a in args if isinstance(a, Value)]
        like = values[-1 if op == "where" else 0].dtype
        if op == "where" and len(values) == 1:
            like = dtype or torch.float32
        known = [a if isinstance(a, Value) else self.number(a, like) for a in args]
        rule = SCALARS[op]
        if like in SMALL_FLOATS and op not in ("cast", "bitcast"):
            raise KeelError("bad-graph", f"{self.call.name} computes {op} in {like}; cast to float32 first.")
        if op != "where" and (like.is_complex or (dtype is not None and dtype.is_complex)):
            raise NotLowerable(f"{self.call.name} computes with complex numbers, which loops only move.")
        operands = known[1:] if op == "where" else known
        if op not in ("cast", "bitcast") and len({v.dtype for v in operands}) > 1:
            raise KeelError("bad-graph", f"{self.call.name} mixes {[str(v.dtype) for v in operands]} in {op}.")
        out = torch.bool if rule.result == "bool" else dtype if rule.result == "given" else operands[0].dtype
        if out is None:
            raise KeelError("bad-graph", f"{self.call.name} gives {op} no dtype.")
        numbers = tuple(v.number for v in known)
        if op == "where" and numbers[0] in self._constants:
            return known[1] if self._constants[numbers[0]] else known[2]
        if op in FOLDED and self._constants.keys() >= {*numbers}:
            return self.const(FOLDED[op](*(self._constants[n] for n in numbers)), out)
        return self._step((op, numbers, out), out, lambda n: Apply(n, op, numbers, out))

    def where(self, mask: Value, yes: Value | Number, no: Value | Number) -> Value:
        return self.apply("where", mask, yes, no)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        return value if value.dtype == dtype else self.apply("cast", value, dtype=dtype)

    def math(self, value: Value) -> Value:
        """``value`` in the dtype that arithmetic is done in: float32 for 16-bit and 8-bit floats, else its own."""
        return self.cast(value, torch.float32) if value.dtype in SMALL_FLOATS else value

    def as_index(self, value: Value, bound: Dim, *, wrap: bool = False, mask: Value | None = None) -> Index:
        """A loaded integer as a coordinate below ``bound``. With ``wrap``, a negative value counts from the end. The
        bound is checked at run time where ``mask`` is true: an index out of range raises KeelError[bad-index].
        """
        value, bound = self.cast(value, torch.int64), canonicalize(bound)
        where = None if mask is None else mask.number
        place = self._step(
            ("place", value.number, bound, wrap, where),
            torch.int64,
            lambda n: CheckedIndex(n, value.number, bound, wrap, where),
        )
        return index(Loaded(place.number, bound))

    def sure_index(self, value: Value, bound: Dim) -> Index:
        """An integer as a coordinate. By construction it is below ``bound`` and not negative, so it is not checked."""
        return index(Loaded(self.cast(value, torch.int64).number, bound))

    def _in_any(self, where: Sequence[Index], mask: Value | None) -> Value | None:
        """``mask``, combined with the condition that each dimension with a loaded index has elements, unless that is
        known.
        """
        for bound in dict.fromkeys(b for i in where for b in loaded_bounds(i) if not is_positive(b)):
            some = self.number(bound, torch.int64) > 0
            mask = some if mask is None else mask & some
        return mask

    # -- folds, scans, scatters ---------------------------------------------------------------------

    def reduce(self, monoid: str, *values: Value) -> Value:
        """The first component of the fold. ``reduce_all`` returns all components."""
        return self.reduce_all(monoid, *values)[0]

    def reduce_all(self, monoid: str, *values: Value) -> tuple[Value, ...]:
        return self._folding(Reduce, monoid, values)

    def scan(self, monoid: str, dim: int, *values: Value) -> tuple[Value, ...]:
        """The running fold along dimension ``dim`` of the result."""
        self._kind, self._scanned = "scan", self._axes[dim]
        return self._folding(Scan, monoid, values)

    def scatter(
        self, base: Operand, at: Sequence[Index | Dim], value: Value, mode: StoreMode, mask: Value | None = None
    ) -> None:
        """Makes this a scatter: the result is a copy of ``base``, into which ``value`` is written at ``at`` for every
        point of the axes.
        """
        if mode != "write" and value.dtype.is_complex:
            raise NotLowerable(f"{self.call.name} computes with complex numbers, which loops only move.")
        self._kind, self._base = "scatter", base.number
        places = tuple(index(i) for i in at)
        mask = self._in_any(places, mask)
        self._update = Update(places, value.number, mode, None if mask is None else mask.number)

    def _folding(self, form: type[Reduce] | type[Scan], monoid: str, values: Sequence[Value]) -> tuple[Value, ...]:
        if len(values) != MONOIDS[monoid].arity:
            raise KeelError(
                "bad-graph", f"{monoid} folds {MONOIDS[monoid].arity} values, {self.call.name} gives {len(values)}."
            )
        if any(v.dtype.is_complex for v in values):
            raise NotLowerable(f"{self.call.name} folds complex numbers, which loops only move.")
        first = self._next
        numbers = tuple(range(first, first + len(values)))
        dtypes = tuple(v.dtype for v in values)
        self._steps.append(form(numbers, monoid, tuple(v.number for v in values), dtypes))
        return tuple(Value(self, n, d) for n, d in zip(numbers, dtypes, strict=True))

    # -- making it ---------------------------------------------------------------------------------

    @property
    def _next(self) -> int:
        if not self._steps:
            return 0
        last = self._steps[-1]
        return (last.results[-1] if isinstance(last, Reduce | Scan) else last.result) + 1

    def _step(self, key: Any, dtype: torch.dtype, make: Callable[[int], Step]) -> Value:
        key = (*key, any(isinstance(s, Reduce) for s in self._steps))  # steps before and after the fold are never equal
        if key not in self._known:
            number = self._next
            self._steps.append(make(number))
            self._known[key] = Value(self, number, dtype)
        return self._known[key]

    def finish(self, result: Value | Sequence[Value] | None) -> LoopDefinition:
        values = () if result is None else (result,) if isinstance(result, Value) else tuple(result)
        return LoopDefinition(
            self._kind,
            self._axes,
            self._folded,
            tuple(self._steps),
            tuple(v.number for v in values),
            self._scanned,
            self._update,
            self._base,
        )


Rule = Callable[..., Any]
"""Called as rule(builder, *args, **kwargs) with the arguments of the call, and an Operand for each tensor."""


def trace_rule(rule: Rule, call: Call) -> LoopDefinition:
    """Runs ``rule`` on ``call``. The result's coordinates are those of the call's first output."""
    first = next(t for t in call.out if isinstance(t, TensorType))
    builder = Builder(call, first.shape)
    operands = iter([Operand(builder, n, t) for n, t in enumerate(call.tensors)])

    def bind(value: Any) -> Any:
        if isinstance(value, TensorType):
            return next(operands)
        if isinstance(value, list | tuple):
            return [bind(v) for v in value]
        return value.expr if isinstance(value, SymType) else value

    args = [bind(a) for a in call.args]
    kwargs = {k: bind(v) for k, v in call.kwargs.items()}
    return builder.finish(rule(builder, *args, **kwargs))


def reshaped(at: Sequence[Index], old: tuple[Dim, ...], new: tuple[Dim, ...]) -> tuple[Index, ...]:
    """The coordinates in shape ``old`` of the element that is at ``at`` in shape ``new``, both row-major."""
    return unflatten(flatten(at, contiguous_strides(new)), old)
