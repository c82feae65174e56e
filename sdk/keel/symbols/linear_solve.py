"""Solves known sizes for symbols."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sympy

from keel.symbols.symbol_names import free_symbols


def solve_linear(expr: Any, known: Collection[str]) -> tuple[str, Any, Any] | None:
    """Returns (symbol, factor, rest) with expr = factor * symbol + rest, if exactly one symbol is unknown and occurs
    linearly.

    The symbol does not occur in ``factor`` and ``rest``, which are integer expressions.
    """
    unknown = [s for s in getattr(expr, "free_symbols", ()) if s.name not in known]
    if len(unknown) != 1 or not expr.is_polynomial(unknown[0]):
        return None
    (symbol,) = unknown
    factor = sympy.diff(expr, symbol)
    rest = sympy.expand(expr - factor * symbol)
    if factor == 0 or {symbol.name} & {*free_symbols(factor), *free_symbols(rest)}:
        return None
    return symbol.name, factor, rest


def implied_symbols(sizes: Iterable[Any]) -> frozenset[str]:
    """Returns the symbols whose values follow from ``sizes``: each is a size itself, or the solution of one."""
    dims = list(sizes)
    names = {d.name for d in dims if isinstance(d, sympy.Symbol)}
    for d in dims:
        if (solved := solve_linear(d, names)) is not None:
            names.add(solved[0])
    return frozenset(names)
