"""The loop IR: a kernel is buffers and a tree of loops over straight-line statements, all frozen data.

Values are numbered and assigned once.  A value is visible after its statement, in its own block and in the loops
nested in it; the results of a Reduce are visible after the reduce loop that encloses it.  Arithmetic is never done in
16-bit or 8-bit floats: those dtypes are loaded, cast, and cast back before they are stored.  Complex numbers are
loaded, chosen by ``where`` and stored.  ``interpret`` is the definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import sympy
import torch

from keel.loops.index import Axis, Index, dims_of, loaded_of
from keel.loops.scalar_ops import SCALARS
from keel.loops.symbolic_sizes import assumption_of, format_size
from keel.types import DTYPE_NAMES, Dim, symbols_of

Role = Literal["in", "out", "inout"]
LoopKind = Literal["parallel", "reduce", "scan"]
StoreMode = Literal["write", "add", "min", "max", "mul"]
Dtypes = dict[int, torch.dtype]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A parameter of a kernel: a one-dimensional run of ``size`` elements. Indices count elements from its start."""

    name: str
    dtype: torch.dtype
    size: Dim
    role: Role


Buffers = Mapping[str, Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal of the given dtype; floats may be inf or nan. Two literals are equal if their texts are, so NaN equals
    NaN.
    """

    result: int
    value: bool | int | float
    dtype: torch.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[int, str, torch.dtype]:
        return self.result, repr(self.value), self.dtype


@dataclass(frozen=True, slots=True)
class Position:
    """An index as an int64 number (a loop position, or a size that is only known at run time)."""

    result: int
    index: Index

    @property
    def dtype(self) -> torch.dtype:
        return torch.int64


@dataclass(frozen=True, slots=True)
class Load:
    """Loads buffer[index]. If there is a ``mask`` (a bool value) and it is false, nothing is read and the result is
    zero.
    """

    result: int
    buffer: str
    index: Index
    dtype: torch.dtype
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A bounds check: turns the int64 ``value`` into an index below ``bound``. With ``wrap``, a negative value counts
    from the end.

    A value out of bounds is an error: ``buffer[site]``, an int64 that was 0, becomes value + 1, or value if that is
    negative. If several values are out of bounds, any one of them is recorded. The result is then some valid index.
    Nothing is recorded where ``mask`` is false. A valid index exists only if ``bound`` is positive, so loads from a
    buffer without elements are masked.
    """

    result: int
    value: int
    bound: Dim
    buffer: str
    site: int
    wrap: bool = False
    mask: int | None = None

    @property
    def dtype(self) -> torch.dtype:
        return torch.int64


@dataclass(frozen=True, slots=True)
class Apply:
    """Applies a scalar op (a name in ``loops.scalar_ops.SCALARS``) to earlier values."""

    result: int
    op: str
    args: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """Folds one tuple of values per iteration of the enclosing reduce loop with a monoid of ``loops.monoids``."""

    results: tuple[int, ...]
    monoid: str
    args: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """The running fold of the enclosing scan loop, which runs in order. The current iteration is included."""

    results: tuple[int, ...]
    monoid: str
    args: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Stores buffer[index] = value, or does an atomic read-modify-write. Writes nothing where ``mask`` is false."""

    buffer: str
    index: Index
    value: int
    mode: StoreMode = "write"
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs the body once for each point of the axes' product, the last axis fastest.

    parallel: iterations are independent. reduce: iterations are independent but for the Reduce statements directly in
    the body, at least one. scan: iterations run in order, over one axis.
    """

    kind: LoopKind
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]


Stmt = Const | Position | Load | Check | Apply | Reduce | Scan | Store | Loop


@dataclass(frozen=True, slots=True)
class Kernel:
    """A named kernel.  ``symbols`` are the sizes known only at run time, as int64 parameters after the buffers."""

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_of(self.sizes)

    @property
    def sizes(self) -> set[Dim]:
        """Every size that the kernel mentions, in buffers, loops and indices."""
        dims: set[Dim] = {b.size for b in self.buffers}
        for stmt in walk(self.body):
            match stmt:
                case Loop():
                    dims |= {a.size for a in stmt.axes}
                case Position() | Load() | Store():
                    dims |= dims_of(stmt.index)
                case Check():
                    dims.add(stmt.bound)
        return dims

    def __str__(self) -> str:
        return show(self)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yields every statement, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from walk(stmt.body)


def results_of(stmt: Stmt) -> tuple[int, ...]:
    """The numbers of the values that the statement assigns."""
    match stmt:
        case Const() | Position() | Load() | Check() | Apply():
            return (stmt.result,)
        case Reduce() | Scan():
            return stmt.results
        case Store() | Loop():
            return ()


def operands_of(stmt: Stmt) -> tuple[int, ...]:
    """The numbers of the values that the statement reads, also in its index and its mask. A loop itself reads no
    values.
    """
    match stmt:
        case Position():
            return tuple(sorted(loaded_of(stmt.index)))
        case Load():
            return (*sorted(loaded_of(stmt.index)), *(() if stmt.mask is None else (stmt.mask,)))
        case Check():
            return (stmt.value, *(() if stmt.mask is None else (stmt.mask,)))
        case Apply() | Reduce() | Scan():
            return stmt.args
        case Store():
            return (stmt.value, *sorted(loaded_of(stmt.index)), *(() if stmt.mask is None else (stmt.mask,)))
        case _:
            return ()


def dtypes_of(body: tuple[Stmt, ...]) -> dict[int, torch.dtype]:
    """The dtype of each value that the statements and the bodies of loops compute, by the value's number."""
    dtypes: dict[int, torch.dtype] = {}
    for stmt in walk(body):
        match stmt:
            case Const() | Position() | Load() | Check() | Apply():
                dtypes[stmt.result] = stmt.dtype
            case Reduce() | Scan():
                dtypes |= zip(stmt.results, stmt.dtypes, strict=True)
            case Store() | Loop():
                pass
    return dtypes


# -- its text, which keel.loops.parser reads back -------------------------------------------------------------------


def show(kernel: Kernel) -> str:
    """The kernel's text, one statement a line, ending in a newline."""
    buffers = {b.name: b for b in kernel.buffers}
    lines = [_header(kernel), *_block(kernel.body, buffers, {}, 1)]
    return "\n".join(lines) + "\n"


def line_of(stmt: Stmt, buffers: Buffers, dtypes: Dtypes) -> str:
    """The text of one statement, or the first line of a loop. ``dtypes`` has the dtypes of the values before it."""
    match stmt:
        case Loop():
            axes = ", ".join(f"{a.name} < {format_size(a.size)}" for a in stmt.axes)
            return f"{stmt.kind} {axes}:" if axes else f"{stmt.kind}:"
        case Store():
            mode = "" if stmt.mode == "write" else f"{stmt.mode} "
            return f"store {mode}{stmt.buffer}[{stmt.index}] %{stmt.value}{_mask(stmt.mask)}"
        case Const():
            return f"%{stmt.result} = const {_literal(stmt.value)}{_type(stmt.dtype)}"
        case Position():
            return f"%{stmt.result} = position {stmt.index}"
        case Load():
            held = buffers[stmt.buffer].dtype if stmt.buffer in buffers else None
            text = f"%{stmt.result} = load {stmt.buffer}[{stmt.index}]{_mask(stmt.mask)}"
            return text if held == stmt.dtype else text + _type(stmt.dtype)
        case Check():
            wrap = " wrap" if stmt.wrap else ""
            return (
                f"%{stmt.result} = check {stmt.buffer}[{stmt.site}]: %{stmt.value} < {format_size(stmt.bound)}{wrap}"
                f"{_mask(stmt.mask)}"
            )
        case Apply():
            text = f"%{stmt.result} = {stmt.op}{_values(stmt.args)}"
            return text if implied_dtype(stmt.op, stmt.args, dtypes) == stmt.dtype else text + _type(stmt.dtype)
        case Reduce() | Scan():
            word = "reduce" if isinstance(stmt, Reduce) else "scan"
            text = f"{', '.join(f'%{r}' for r in stmt.results)} = {word} {stmt.monoid}{_values(stmt.args)}"
            same = tuple(dtypes.get(a) for a in stmt.args) == stmt.dtypes
            return text if same else text + _type(*stmt.dtypes)


def implied_dtype(op: str, args: tuple[int, ...], dtypes: Mapping[int, torch.dtype]) -> torch.dtype | None:
    """The result dtype that follows from the op and its operands; None if the statement has to name it."""
    row = SCALARS.get(op)
    if row is None or row.result == "given":
        return None
    return torch.bool if row.result == "bool" else dtypes.get(args[-1]) if args else None


def record_dtypes(stmt: Stmt, dtypes: Dtypes) -> None:
    """Adds the dtypes of the values that ``stmt`` assigns."""
    match stmt:
        case Const() | Position() | Load() | Check() | Apply():
            dtypes[stmt.result] = stmt.dtype
        case Reduce() | Scan():
            dtypes |= zip(stmt.results, stmt.dtypes, strict=False)
        case Store() | Loop():
            pass


def _header(kernel: Kernel) -> str:
    outs = [b for b in kernel.buffers if b.role == "out"]
    ins = [b for b in kernel.buffers if b.role != "out"]
    if (*ins, *outs) != kernel.buffers:  # inputs do not come first: list all buffers with their roles
        ins, outs = list(kernel.buffers), []
    text = f"kernel {kernel.name}({', '.join(_buffer(b, b.role == 'in') for b in ins)})"
    text += f" -> ({', '.join(_buffer(b, True) for b in outs)})"
    symbols = {s for d in kernel.sizes if isinstance(d, sympy.Expr) for s in d.free_symbols}
    known = [
        s.name + ("" if assumption_of(s) == ">= 1" else f" {assumption_of(s)}")
        for s in sorted(symbols, key=lambda s: s.name)
    ]
    return f"{text} where {', '.join(known)}:" if known else f"{text}:"


def _buffer(b: Buffer, plain: bool) -> str:
    role = "" if plain else f"{b.role} "
    return f"{b.name}: {role}{DTYPE_NAMES[b.dtype]}[{format_size(b.size)}]"


def _block(body: tuple[Stmt, ...], buffers: Buffers, dtypes: Dtypes, depth: int) -> Iterator[str]:
    for stmt in body:
        yield "  " * depth + line_of(stmt, buffers, dtypes)
        record_dtypes(stmt, dtypes)
        if isinstance(stmt, Loop):
            yield from _block(stmt.body, buffers, dtypes, depth + 1)


def _literal(value: bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _type(*dtypes: torch.dtype) -> str:
    return " : " + ", ".join(DTYPE_NAMES[d] for d in dtypes)


def _values(values: tuple[int, ...]) -> str:
    return "".join(f" %{v}" for v in values)


def _mask(mask: int | None) -> str:
    return "" if mask is None else f" if %{mask}"
