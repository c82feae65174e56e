"""Prints index expressions and sizes as Triton integers.

Triton divides integers toward zero. If an index may be negative, // and % are corrected to those of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import sympy
import torch

from keel import Dim, KeelError
from keel.loops import Axis, Div, Index, Loaded, Mod, bounds, non_negative
from keel_triton.op_table import DTYPES

INDEX_TYPES = {"int32": torch.int32, "int64": torch.int64}


@dataclass(frozen=True, slots=True)
class Var:
    """A name in the source, or a text that needs no parentheses. ``dims`` says along which of x and r it varies."""

    text: str
    dims: frozenset[str]
    dtype: torch.dtype


Lookup = Callable[[Axis | Loaded], Var]
Names = Mapping[Dim | str, str]


def size_text(d: Dim, derived: Names) -> str:
    """The text of a size. Symbols are parameters, and so are subexpressions that a kernel cannot compute."""
    if isinstance(d, int | sympy.Integer):
        return str(int(d))
    if d in derived:
        return derived[d]
    if isinstance(d, sympy.Symbol):
        return derived.get(str(d), str(d))
    if not isinstance(d, sympy.Add | sympy.Mul):
        raise KeelError("no-lowering", f"The size {d} uses {type(d).__name__}, which the host has not computed.")
    texts = [tight(size_text(a, derived)) for a in d.args]
    return (" + " if isinstance(d, sympy.Add) else "*").join(texts)


def product_text(sizes: Iterable[Dim], derived: Names) -> str:
    known, texts = 1, []
    for d in sizes:
        if isinstance(d, int):
            known *= d
        else:
            texts.append(size_text(d, derived))
    if known != 1 or not texts:
        texts.insert(0, str(known))
    return texts[0] if len(texts) == 1 else "*".join(tight(t) for t in texts)


def index_text(i: Index, lookup: Lookup, derived: Names) -> tuple[str, frozenset[str]]:
    """(text, dims) of an index."""
    texts, dims = [], frozenset[str]()
    for atom, c in i.terms:
        text, varies = _atom(atom, lookup, derived)
        dims |= varies
        texts.append(text if c == 1 else f"{tight(size_text(c, derived))}*{tight(text)}")
    if i.const != 0 or not texts:
        texts.append(size_text(i.const, derived))
    return " + ".join(texts), dims


def _atom(atom: Axis | Loaded | Div | Mod, lookup: Lookup, derived: Names) -> tuple[str, frozenset[str]]:
    if isinstance(atom, Axis | Loaded):
        var = lookup(atom)
        return var.text, var.dims
    text, dims = index_text(atom.of, lookup, derived)
    of, by = tight(text), tight(size_text(atom.by, derived))
    limits = bounds(atom.of)
    positive = limits is not None and non_negative(limits[0])
    if isinstance(atom, Mod):
        return (f"({of} % {by})" if positive else f"(({of} % {by} + {by}) % {by})"), dims
    return (f"({of} // {by})" if positive else f"(({of} - ({of} % {by} + {by}) % {by}) // {by})"), dims


def runs(i: Index, axes: tuple[Axis, ...]) -> Iterator[tuple[int, int]]:
    """(start, stop) of the adjacent axes whose terms form one: c*size(b)*a + c*b."""
    start = 0
    while start < len(axes):
        stop = start + 1
        while (
            stop < len(axes)
            and (c := i.coefficient(axes[stop - 1])) != 0
            and _same(c, i.coefficient(axes[stop]) * axes[stop].size)
        ):
            stop += 1
        if stop > start + 1:
            yield start, stop
        start = stop


def merged(i: Index, axes: tuple[Axis, ...], joint: Axis) -> Index:
    """``i`` with the terms of ``axes``, which are one run, as one term."""
    remaining = tuple((t, c) for t, c in i.terms if t not in axes)
    return Index(i.const, (*remaining, (joint, i.coefficient(axes[-1]))))


def _same(a: Dim, b: Dim) -> bool:
    return a == b or (not (isinstance(a, int) and isinstance(b, int)) and sympy.expand(a - b) == 0)


def narrowed(var: Var, index: str) -> str:
    """A loaded value in the dtype of index arithmetic."""
    if index == "INDEX":
        return f"{var.text}.to(INDEX)"
    return var.text if var.dtype == INDEX_TYPES[index] else f"{var.text}.to({DTYPES[INDEX_TYPES[index]]})"


def tight(text: str) -> str:
    """The text as an operand: in parentheses unless it is one word or has parentheses."""
    if text.replace("_", "a").isalnum() or _enclosed(text):
        return text
    return f"({text})"


def _enclosed(text: str) -> bool:
    """True if one pair of parentheses encloses the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    depth = 0
    for k, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return k == len(text) - 1
    return False
