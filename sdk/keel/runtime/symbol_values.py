"""The values of all symbols in the types of a part's inputs, also of those that only strides tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import sympy
import torch

from keel.errors import KeelError
from keel.graph.static_sizes import type_with_sizes
from keel.runtime.contract_checks import bind, mismatch
from keel.symbols import evaluate, free_symbols, solve_linear
from keel.types import Dim, SymType, TensorType, Type

Tensors = Sequence[tuple[TensorType, torch.Tensor]]
Equation = tuple[Dim, int]
"""An expression and its value."""


def symbol_values(types: Sequence[Type], values: Sequence[Any]) -> dict[str, int]:
    """The value of each symbol in ``types``, such that ``values`` have these types. A symbol is a size, a number or a
    stride by itself, or it follows from an expression that is one. Where several values are possible, since strides
    alone have the symbol, it is one of them.

    Raises KeelError[bad-graph] if no value is found for a symbol.
    """
    tensors = [(t, value) for t, value in zip(types, values, strict=True) if isinstance(t, TensorType)]
    known = {str(s): step for s, step in _strides(tensors) if isinstance(s, sympy.Symbol)} | bind(types, values)
    symbols = {s for t in types for s in (t.symbols if isinstance(t, TensorType) else free_symbols(t.expr))}
    if symbols <= known.keys():
        return known
    numbers = [(t.expr, v) for t, v in zip(types, values, strict=True) if isinstance(t, SymType) and t.kind == "int"]
    sizes = [size for t, x in tensors for size in zip(t.shape, x.shape, strict=True)]
    steps = [*_strides(tensors, several=True)]
    for dim, value in (*numbers, *sizes, *steps):
        known |= _solution(dim, value, known)
    for dim, value in steps:  # of symbols that only the product has, all but one may be 1
        known |= dict.fromkeys([s for s in free_symbols(dim) if s not in known][1:], 1)
        known |= _solution(dim, value, known)
    known = dict.fromkeys(symbols, 1) | known  # the others are in strides of dimensions of one element
    if any(mismatch(type_with_sizes(t, known), x, {}) is not None for t, x in tensors):
        names = ", ".join(str(t) for t, _ in tensors)
        raise KeelError("bad-graph", f"The inputs of a part do not tell the sizes in their types: {names}.")
    return known


def _strides(tensors: Tensors, several: bool = False) -> Iterator[Equation]:
    """The strides of dimensions of one element, which may be any, unless ``several``; and those of the others."""
    dims = [step for t, x in tensors for step in zip(t.strides, x.stride(), x.shape, strict=True)]
    if not several:
        yield from ((dim, step) for dim, step, n in dims if n <= 1)
    yield from ((dim, step) for dim, step, n in dims if n > 1)


def _solution(dim: Dim, value: int, known: dict[str, int]) -> dict[str, int]:
    """The value of the only unknown symbol of an expression that has it linearly, if there is one."""
    if isinstance(dim, int) or (solved := _solved(dim, frozenset(known))) is None:
        return {}
    name, factor, rest = solved
    by = evaluate(factor, known)
    return {name: (value - evaluate(rest, known)) // by} if by else {}


_solved = lru_cache(maxsize=1 << 10)(solve_linear)
