"""Plans the launches of a kernel: the axes that are divided among programs, how each inner loop runs, and the
parameters.

``render`` prints a plan and ``build`` launches it; both derive it from the kernel alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Literal

import sympy

from keel import Dim
from keel.loops import (
    Axis,
    Buffer,
    Check,
    Div,
    Index,
    Kernel,
    Load,
    Loaded,
    Loop,
    Mod,
    Position,
    Store,
    axes_of,
    dims_of,
    evaluate,
    walk,
)
from keel_triton.axis_order import arranged, by_stride, tiled
from keel_triton.launch_split import Body, launches

Mode = Literal["block", "steps", "serial"]

ONE_PASS = 4096  # the longest row in one block, for a single loop
SEVERAL_PASSES = 16384  # the longest row in one block, if that saves reading it again
UNKNOWN = 1 << 20  # the assumed length of a loop that is known at run time only
STRIP = 64  # the most columns of a program
UNROLLED = 16  # the longest loop that each lane runs by itself, unrolled
NARROW = 2**31 - 2**21  # indices below this fit int32, even those of lanes past the end of the last block

_RESERVED = re.compile(r"pid|[xy]|[xy]_.*|tl|triton|libdevice|[abcjnrv]\d.*|off\d+|end\d+|[XR]BLOCK\d*|INDEX")


@dataclass(frozen=True)
class Part:
    """A piece in blocks. ``axes`` are flattened and divided into blocks of XBLOCK rows; without axes there is one row.
    ``rank`` is 0 for scalars, 1 for one lane per row, and 2 for rows by lanes of the inner loops. ``contiguous`` says
    whether most accesses are contiguous along rows (x) or along the inner loops (r). ``itemsize`` is the most bytes of
    an element that inner loops read or write and rows do not share. ``outer`` are axes of which a program has one
    point: what depends on them is a scalar.
    """

    axes: tuple[Axis, ...]
    body: Body
    rank: int
    contiguous: Literal["x", "r"]
    itemsize: int = 4
    outer: tuple[Axis, ...] = ()

    @property
    def rows(self) -> tuple[Dim, ...]:
        return tuple(a.size for a in self.axes)


@dataclass(frozen=True)
class Launch:
    """One Triton function. Its parameters are ``buffers``, ``symbols``, ``derived`` sizes, then constants. ``index`` is
    the dtype of index arithmetic, or INDEX if it depends on the sizes.
    """

    name: str
    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    derived: tuple[Dim, ...]
    index: Literal["int32", "int64", "INDEX"]

    def suffix(self, part: int) -> str:
        return str(part) if len(self.parts) > 1 else ""

    @property
    def names(self) -> dict[str, str]:
        """The parameter of each buffer: its name, unless the source uses that name otherwise."""
        return {b.name: f"{b.name}_" if _RESERVED.fullmatch(b.name) else b.name for b in self.buffers}

    @property
    def numbers(self) -> dict[str, Dim]:
        """The int parameters: the symbols, and the sizes that are computed on the host."""
        symbols = {f"{s}_" if _RESERVED.fullmatch(s) else s: sympy.Symbol(s) for s in self.symbols}
        return symbols | {f"n{k}": d for k, d in enumerate(self.derived)}

    @property
    def sizes(self) -> dict[Dim | str, str]:
        """The name in the source of each symbol and each size that the host computes."""
        return {str(d) if isinstance(d, sympy.Symbol) else d: name for name, d in self.numbers.items()}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters that are passed at each launch."""
        return (*self.names.values(), *self.numbers)

    @property
    def constants(self) -> tuple[str, ...]:
        names = ["INDEX"] if self.index == "INDEX" else []
        for k, part in enumerate(self.parts):
            if part.axes:
                names.append(f"XBLOCK{self.suffix(k)}")
            if steps(part):
                names.append(f"RBLOCK{self.suffix(k)}")
        return tuple(names)


@lru_cache(maxsize=4096)
def plan(kernel: Kernel) -> tuple[Launch, ...]:
    """The launches of ``kernel``, in order."""
    phases = launches(kernel)
    itemsizes = {b.name: b.dtype.itemsize for b in kernel.buffers}
    index: Literal["int32", "int64", "INDEX"] = "INDEX"
    if not kernel.symbols:
        index = "int64" if reach(kernel, {}) > NARROW else "int32"
    result = []
    for k, pieces in enumerate(phases):
        parts = tuple(_part(p.axes, p.body, itemsizes) for p in pieces)
        name = kernel.name if len(phases) == 1 else f"{kernel.name}_{k}"
        result.append(_launch(kernel, name, parts, index))
    return tuple(result)


def _launch(kernel: Kernel, name: str, parts: tuple[Part, ...], index: Literal["int32", "int64", "INDEX"]) -> Launch:
    touched = {s.buffer for p in parts for s in walk(p.body) if isinstance(s, Load | Check | Store)}
    dims = sorted({d for p in parts for d in _dims(p)}, key=str)
    derived = {a for d in dims for a in _opaque(d)}
    symbols = {str(s) for d in dims for a in _transparent(d) for s in a.free_symbols}
    return Launch(
        name,
        parts,
        tuple(b for b in kernel.buffers if b.name in touched),
        tuple(s for s in kernel.symbols if s in symbols),
        tuple(sorted(derived, key=str)),
        index,
    )


def _part(axes: tuple[Axis, ...], body: Body, itemsizes: Mapping[str, int]) -> Part:
    body = tuple(arranged(s) if isinstance(s, Loop) else s for s in body)
    axes, body = tiled(by_stride(axes, body), body)
    contiguous = _contiguous(axes, body)
    inner = [s for s in body if isinstance(s, Loop)]
    accesses = [s for loop in inner for s in walk(loop.body) if isinstance(s, Load | Store)]
    candidate = Part(axes, body, 2, contiguous, _itemsize(axes, accesses, itemsizes))
    if all(mode(s, candidate) == "serial" for s in inner):
        return Part(axes, body, 1 if axes else 0, contiguous)
    if contiguous == "x" and _shared_by_columns(axes, accesses):
        return replace(candidate, axes=axes[-1:], outer=axes[:-1])
    return candidate


def _shared_by_columns(axes: tuple[Axis, ...], accesses: Sequence[Load | Store]) -> bool:
    """True if neighboring columns, of which there are several strips, read the same elements at each step. Those are
    loaded once for a strip if it lies within one point of the outer axes.
    """
    if not isinstance(axes[-1].size, int) or axes[-1].size < STRIP:
        return False
    loads = (axes_of(s.index) for s in accesses if isinstance(s, Load))
    return any(axes[-1] not in used and not used.isdisjoint(axes) for used in loads)


def _contiguous(axes: tuple[Axis, ...], body: Body) -> Literal["x", "r"]:
    lanes = rows = 0
    for loop in (s for s in body if isinstance(s, Loop)):
        size = length(loop)
        points = size if isinstance(size, int) else UNKNOWN
        for s in walk(loop.body):
            if isinstance(s, Load | Store):
                lanes += points * (bool(loop.axes) and s.index.coefficient(loop.axes[-1]) in (1, -1))
                rows += points * (bool(axes) and s.index.coefficient(axes[-1]) in (1, -1))
    return "x" if rows and rows >= lanes else "r"  # windows overlap along both, and are short


def _itemsize(axes: tuple[Axis, ...], accesses: Sequence[Load | Store], itemsizes: Mapping[str, int]) -> int:
    own = [s for s in accesses if not axes_of(s.index).isdisjoint(axes)] or accesses
    return max((itemsizes[s.buffer] for s in own), default=4)


def mode(loop: Loop, part: Part) -> Mode:
    """How a loop directly in ``part`` runs: in one block, in steps of RBLOCK, or each lane alone, point by point."""
    size = length(loop)
    if not loop.axes or size == 0:
        return "serial"
    if not isinstance(size, int):
        return "steps"
    if part.axes and size <= (UNROLLED if part.contiguous == "x" else 4):
        return "serial"
    same = sum(length(s) == size for s in part.body if isinstance(s, Loop))
    limit = SEVERAL_PASSES if same > 1 else ONE_PASS
    if part.contiguous == "x" and part.axes:
        limit = 64
    return "block" if size <= limit else "steps"


def steps(part: Part) -> tuple[Loop, ...]:
    """The loops of ``part`` that run in steps of RBLOCK."""
    return tuple(s for s in part.body if isinstance(s, Loop) and part.rank == 2 and mode(s, part) == "steps")


def blocks(part: Part) -> tuple[int, ...]:
    """The padded lengths of the loops that run in one block."""
    return tuple(
        padded(length(s)) for s in part.body if isinstance(s, Loop) and part.rank == 2 and mode(s, part) == "block"
    )


def length(loop: Loop) -> Dim:
    return prod(a.size for a in loop.axes)


def padded(size: Dim) -> int:
    """The next power of two."""
    return 1 << max(int(size) - 1, 0).bit_length()


def reach(kernel: Kernel, symbols: Mapping[str, int]) -> int:
    """An upper bound of the magnitude of index arithmetic in ``kernel`` at these sizes."""
    return max(magnitudes(kernel, lambda size: evaluate(size, symbols)), default=0)


def magnitudes(kernel: Kernel, value: Callable[[Dim], Any]) -> Iterator[Any]:
    """Upper bounds of the magnitudes of all index arithmetic in ``kernel``. ``value`` makes an int of a size, or leaves
    it as it is.
    """
    yield from (value(b.size) for b in kernel.buffers)
    for s in walk(kernel.body):
        match s:
            case Loop():
                yield prod(value(a.size) for a in s.axes)
            case Position() | Load() | Store():
                total, inner = _magnitude(s.index, value)
                yield from (total, *inner)


def _magnitude(i: Index, value: Callable[[Dim], Any]) -> tuple[Any, list[Any]]:
    """A bound on abs(i), and bounds on all intermediate results."""
    total, inside = abs(value(i.const)), list[Any]()
    for atom, c in i.terms:
        match atom:
            case Axis():
                top = value(atom.size) - 1
                inside.append(top)
            case Loaded():
                top = value(atom.bound) - 1
                inside.append(top)
            case Div():
                by, (top, inner) = value(atom.by), _magnitude(atom.of, value)
                inside += (n + by for n in (top, *inner))
                top = top // by + 1
            case Mod():
                top = value(atom.by) - 1
                of, inner = _magnitude(atom.of, value)
                inside += (n + top + 1 for n in (of, *inner))
        total += abs(value(c)) * top
    return total, inside


def _dims(part: Part) -> Iterator[sympy.Expr]:
    sizes: list[Dim] = [a.size for a in (*part.outer, *part.axes)]
    for s in walk(part.body):
        match s:
            case Loop():
                sizes += [a.size for a in s.axes]
            case Position() | Load() | Store():
                sizes += dims_of(s.index)
            case Check():
                sizes.append(s.bound)
    yield from (d for d in sizes if not isinstance(d, int))


def _opaque(d: sympy.Expr) -> Iterator[sympy.Expr]:
    """The subexpressions that the host computes: all but sums, products and integers."""
    if isinstance(d, sympy.Add | sympy.Mul) and all(not a.is_Number or a.is_Integer for a in d.args):
        for a in d.args:
            yield from _opaque(a)
    elif not isinstance(d, sympy.Symbol | sympy.Integer):
        yield d


def _transparent(d: sympy.Expr) -> Iterator[sympy.Expr]:
    """The symbols that a kernel uses directly."""
    if isinstance(d, sympy.Symbol):
        yield d
    elif isinstance(d, sympy.Add | sympy.Mul) and all(not a.is_Number or a.is_Integer for a in d.args):
        for a in d.args:
            yield from _transparent(a)
