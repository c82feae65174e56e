"""Makes loops canonical: splits axes until indices are affine, orders them by memory strides, merges contiguous ones
and renames all.

Kernels that compute the same become equal, whatever their sizes were named. Deduplication and caching use their
equality and their name, a hash of the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from itertools import count

import sympy

from keel.loops.index import Atom, Axis, Div, Index, Loaded, Mod, index, make, quotient, substitute
from keel.loops.ir import (
    Apply,
    Buffer,
    Check,
    Kernel,
    Load,
    Loop,
    Position,
    Reduce,
    Scan,
    Stmt,
    Store,
    results_of,
    walk,
)
from keel.loops.symbolic_sizes import is_positive
from keel.types import Dim

Hint = Callable[[Dim], int]


def canonicalize(kernel: Kernel, hint: Hint) -> Kernel:
    """Returns ``kernel`` with ordered loops and canonical names. ``hint`` estimates symbolic sizes."""
    kernel = replace(kernel, body=tuple(_ordered(s, kernel, hint) for s in _split(kernel).body))
    return rename_canonically(_merged(kernel))


# -- indices of statements ---------------------------------------------------------------------------


def indices(body: tuple[Stmt, ...]) -> Iterator[Index]:
    """Yields every index in the statements, also those nested in Div and Mod."""
    for stmt in walk(body):
        if isinstance(stmt, Position | Load | Store):
            yield from _nested(stmt.index)


def _nested(i: Index) -> Iterator[Index]:
    yield i
    for atom, _ in i.terms:
        if isinstance(atom, Div | Mod):
            yield from _nested(atom.of)


def rewrite(body: tuple[Stmt, ...], values: Mapping[Axis, Index]) -> tuple[Stmt, ...]:
    """Returns the statements with axes replaced in indices; loops keep their axes."""

    def one(stmt: Stmt) -> Stmt:
        match stmt:
            case Position() | Load() | Store():
                return replace(stmt, index=substitute(stmt.index, values))
            case Loop():
                return replace(stmt, body=rewrite(stmt.body, values))
            case _:
                return stmt

    return tuple(map(one, body))


# -- splitting: (a // n) and (a % n) become axes of their own ------------------------------------------


def _split(kernel: Kernel) -> Kernel:
    fresh = (f"s{n}" for n in count())
    while (candidate := next(_splittable(kernel.body), None)) is not None:
        axis, low = candidate
        outer, inner = Axis(next(fresh), quotient(axis.size, low) or 1), Axis(next(fresh), low)
        body = rewrite(kernel.body, {axis: index(outer) * low + inner})
        kernel = replace(kernel, body=_with_axes(body, {axis: (outer, inner)}))
    return kernel


def _splittable(body: tuple[Stmt, ...]) -> Iterator[tuple[Axis, Dim]]:
    ordered = {a for s in walk(body) if isinstance(s, Loop) and s.kind == "scan" for a in s.axes}
    for i in indices(body):
        for atom, _ in i.terms:
            if not isinstance(atom, Div | Mod):
                continue
            for axis, c in atom.of.terms:
                low = quotient(atom.by, c)
                if (
                    isinstance(axis, Axis)
                    and axis not in ordered
                    and low is not None
                    and is_positive(low)  # else the axis counts down, and begins at no multiple
                    and low not in (1, axis.size)
                    and quotient(axis.size, low) is not None
                ):
                    yield axis, low


def _with_axes(body: tuple[Stmt, ...], table: Mapping[Axis, tuple[Axis, ...]]) -> tuple[Stmt, ...]:
    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Loop):
            return stmt
        axes = tuple(b for a in stmt.axes for b in table.get(a, (a,)))
        return replace(stmt, axes=axes, body=_with_axes(stmt.body, table))

    return tuple(map(one, body))


# -- ordering: the axis with the smallest strides innermost ---------------------------------------------


def _ordered(stmt: Stmt, kernel: Kernel, hint: Hint) -> Stmt:
    if not isinstance(stmt, Loop):
        return stmt
    body = tuple(_ordered(s, kernel, hint) for s in stmt.body)
    if stmt.kind == "scan" or len(stmt.axes) < 2:
        return replace(stmt, body=body)
    sizes = {b.name: hint(b.size) for b in kernel.buffers}
    accesses = sorted(_accesses(stmt.body), key=lambda s: (-sizes[s.buffer], isinstance(s, Load)))
    largest = [s for s in accesses if 4 * sizes[s.buffer] >= sizes[accesses[0].buffer]] if accesses else []
    position = {a: n for n, a in enumerate(stmt.axes)}

    def far(axis: Axis) -> tuple[int, ...]:
        """Returns the distance between neighbors along ``axis`` in the largest buffers, stores first."""
        votes = [hint(s.index.coefficient(axis)) for s in largest]
        return (*(v for v in votes if v != 0), 0) if any(votes) else (0,)

    axes = sorted(stmt.axes, key=lambda a: (-far(a)[0], position[a]))
    return replace(stmt, axes=tuple(axes), body=body)


def _accesses(body: tuple[Stmt, ...]) -> Iterator[Load | Store]:
    for stmt in walk(body):
        if isinstance(stmt, Load | Store):
            yield stmt


# -- merging: an axis that counts on where its inner neighbor ends -------------------------------------


def _merged(kernel: Kernel) -> Kernel:
    fresh = (f"m{n}" for n in count())

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Loop):
            return stmt
        axes, body = [a for a in stmt.axes if a.size != 1 or stmt.kind == "scan"], stmt.body
        k = 0
        while k + 1 < len(axes):
            outer, inner = axes[k], axes[k + 1]
            if all(_count_on(i, outer, inner) for i in indices(body)):
                axis = Axis(next(fresh), (index(outer.size) * inner.size).const)
                body = _fuse(body, outer, inner, axis)
                axes[k : k + 2] = [axis]
                k = max(k - 1, 0)
            else:
                k += 1
        return replace(stmt, axes=tuple(axes), body=tuple(map(one, body)))

    return replace(kernel, body=tuple(map(one, kernel.body)))


def _count_on(i: Index, outer: Axis, inner: Axis) -> bool:
    return bool((index(i.coefficient(inner)) * inner.size).const == i.coefficient(outer))


def _fuse(body: tuple[Stmt, ...], outer: Axis, inner: Axis, axis: Axis) -> tuple[Stmt, ...]:
    def moved(i: Index) -> Index:
        terms: list[tuple[Atom, Dim]] = []
        for atom, c in i.terms:
            match atom:
                case Axis():
                    if atom == inner:
                        terms.append((axis, c))
                    elif atom != outer:
                        terms.append((atom, c))
                case Div():
                    terms.append((Div(moved(atom.of), atom.by), c))
                case Mod():
                    terms.append((Mod(moved(atom.of), atom.by), c))
                case Loaded():
                    terms.append((atom, c))
        return make(i.const, terms)

    def one(stmt: Stmt) -> Stmt:
        match stmt:
            case Position() | Load() | Store():
                return replace(stmt, index=moved(stmt.index))
            case Loop():
                return replace(stmt, body=tuple(map(one, stmt.body)))
            case _:
                return stmt

    return tuple(map(one, body))


# -- naming ------------------------------------------------------------------------------------------


def rename_canonically(kernel: Kernel) -> Kernel:
    """Returns ``kernel`` with axes, values and buffers numbered in order of appearance, and a name made of its
    content.
    """
    values: dict[int, int] = {}
    for stmt in _defining(kernel.body):
        for r in results_of(stmt):
            values[r] = len(values)
    counts = {"in": count(), "out": count(), "inout": count()}
    checked = {s.buffer for s in walk(kernel.body) if isinstance(s, Check)}
    names = {b.name: b.name if b.name in checked else f"{b.role}{next(counts[b.role])}" for b in kernel.buffers}
    body = _renamed(kernel.body, 0, {}, values, names)
    buffers = tuple(Buffer(names[b.name], b.dtype, b.size, b.role) for b in kernel.buffers)
    digest = hashlib.sha256(_content((buffers, body)).encode()).hexdigest()[:10]
    return Kernel(f"k_{digest}", buffers, body)


def renumbered(body: tuple[Stmt, ...], values: Mapping[int, int], names: Mapping[str, str]) -> tuple[Stmt, ...]:
    """Returns the statements with other numbers for their values, and other names for their buffers."""
    return _renamed(body, 0, {}, values, names)


def _content(value: Hashable) -> str:
    """``repr(value)``, but each symbolic size is printed once: every index of a deep network's loops holds them."""
    names = _printed_fields(type(value))
    if names:
        parts = [f"{name}={_content(getattr(value, name))}" for name in names]
        return f"{type(value).__qualname__}({', '.join(parts)})"
    if isinstance(value, tuple):
        parts = [_content(v) for v in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    return _size_text(value) if isinstance(value, sympy.Basic) else repr(value)


@cache
def _printed_fields(kind: type) -> tuple[str, ...]:
    """The fields that ``repr`` prints of a dataclass; none of another type."""
    return tuple(f.name for f in fields(kind) if f.repr) if is_dataclass(kind) else ()


@lru_cache(maxsize=1 << 12)
def _size_text(size: sympy.Basic) -> str:
    return repr(size)


def _defining(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yields every statement in the order in which its results exist, also those inside loops."""
    for stmt in body:
        if isinstance(stmt, Loop):
            yield from _defining(stmt.body)
        else:
            yield stmt


def _renamed(
    body: tuple[Stmt, ...], depth: int, axes: Mapping[Axis, Index], values: Mapping[int, int], names: Mapping[str, str]
) -> tuple[Stmt, ...]:
    """The statements with axes called i0, i1 … in loops at the top, j0, j1 … in those nested in them, and so on."""

    def at(i: Index) -> Index:
        return substitute(i, axes, lambda n: values[n])

    def maybe(n: int | None) -> int | None:
        return None if n is None else values[n]

    def one(s: Stmt) -> Stmt:
        match s:
            case Load():
                return Load(values[s.result], names[s.buffer], at(s.index), s.dtype, maybe(s.mask))
            case Check():
                return replace(
                    s, result=values[s.result], value=values[s.value], buffer=names[s.buffer], mask=maybe(s.mask)
                )
            case Store():
                return Store(names[s.buffer], at(s.index), values[s.value], s.mode, maybe(s.mask))
            case Position():
                return Position(values[s.result], at(s.index))
            case Apply():
                return replace(s, result=values[s.result], args=tuple(values[a] for a in s.args))
            case Reduce() | Scan():
                return replace(s, results=tuple(values[r] for r in s.results), args=tuple(values[a] for a in s.args))
            case Loop():
                new = tuple(Axis(f"{chr(ord('i') + depth)}{k}", a.size) for k, a in enumerate(s.axes))
                inner = {**axes, **{a: index(b) for a, b in zip(s.axes, new, strict=True)}}
                return Loop(s.kind, new, _renamed(s.body, depth + 1, inner, values, names))
            case _:
                return replace(s, result=values[s.result])

    return tuple(map(one, body))
