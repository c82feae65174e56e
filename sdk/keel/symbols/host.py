"""Numbers that the host computes for kernels.

A kernel's sizes are integers, symbols, sums, products, powers, floors, remainders and extremes. Whatever else a size
has in it is computed on the host before the launch, and the kernel is given a symbol that stands for it.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any

import sympy

from keel.symbols.bounds import bounds
from keel.symbols.functions import arguments_of, function_of, kind_of

Stand = Callable[[sympy.Expr], sympy.Expr]


def kernel_form(expr: Any, stand: Stand) -> Any:
    """``expr`` in the functions that kernels have; ``stand`` gives the symbol for what is in none of them.

    ``expr`` is an integer, or its parts are.
    """
    if isinstance(expr, int) or not expr.args:
        return expr
    row = function_of(expr)
    if isinstance(expr, sympy.Pow):
        return expr.func(kernel_form(expr.base, stand), expr.exp) if _is_power(expr) else stand(expr)
    if row is None or row.kernel is None or kind_of(expr) != "int" or not all(map(_has_form, arguments_of(expr))):
        return stand(expr)
    if not isinstance(expr, sympy.Add | sympy.Mul | sympy.floor) and not all(a.is_integer for a in expr.args):
        return stand(expr)
    return row.kernel(*(kernel_form(a, stand) for a in expr.args))


def _is_power(expr: sympy.Pow) -> bool:
    """Whether a kernel computes the power; one to a negative integer stands in a ratio of which it takes the floor."""
    return bool(expr.exp.is_Integer) and kind_of(expr.base) == "int"


def _has_form(part: Any) -> bool:
    return kind_of(part) == "int"


class HostNumbers:
    """The symbols that stand for what kernels cannot compute, ``by_name``; each expression has one."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken: Collection[str] = frozenset(taken)
        self.by_name: dict[str, sympy.Expr] = {}
        self._symbols: dict[sympy.Expr, sympy.Symbol] = {}

    def size(self, expr: Any) -> Any:
        """An integer as kernels may have it."""
        return kernel_form(expr, self.stand)

    def stand(self, expr: sympy.Expr) -> sympy.Symbol:
        """The symbol for an integer: known to be positive, or not negative, where its range says so."""
        if expr not in self._symbols:
            name = next(n for k in range(len(self.taken) + len(self.by_name) + 1)
                        if (n := f"h{k}") not in self.taken and n not in self.by_name)
            self._symbols[expr] = sympy.Symbol(name, integer=True, **_known(expr))
            self.by_name[name] = expr
        return self._symbols[expr]


@lru_cache(maxsize=1 << 12)
def _known(expr: sympy.Expr) -> dict[str, bool]:
    low = bounds(expr).low
    return {"positive": True} if low >= 1 else {"nonnegative": True} if low >= 0 else {}
