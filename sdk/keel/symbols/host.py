"""Numbers that the host computes for kernels.

A kernel's sizes are integers, symbols, sums, products, powers, floors, remainders and extremes. Whatever else a size
has in it is computed on the host before the launch, and the kernel is given a symbol that stands for it. A float is
given as the integer that has its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Any

import sympy

from keel.symbols.bounds import bounds
from keel.symbols.functions import arguments_of, function_of, kind_of

Stand = Callable[[sympy.Expr], sympy.Expr]


class BitsOfFloat(sympy.Function):  # type: ignore[misc]
    """The int64 that has the bits of a float64."""

    nargs = (1,)
    is_integer = True


class FloatOfBits(sympy.Function):  # type: ignore[misc]
    """The float64 that has the bits of an int64."""

    nargs = (1,)
    is_real = True


def kernel_form(expr: Any, stand: Stand, stood: Mapping[sympy.Expr, sympy.Expr] = MappingProxyType({})) -> Any:
    """``expr``, an integer, in the functions that kernels have; ``stand`` gives the symbol for what is in none.

    Parts that are ``stood`` for already are replaced, too.
    """
    if expr in stood:
        return stood[expr]
    if isinstance(expr, int) or not expr.args:
        return expr
    if isinstance(expr, sympy.Pow):
        return expr.func(kernel_form(expr.base, stand, stood), expr.exp) if _is_power(expr) else stand(expr)
    row = function_of(expr)
    args = arguments_of(expr)
    if row is None or row.kernel is None or any(kind_of(a) != "int" for a in (expr, *args)):
        return stand(expr)
    if type(expr).__name__ in _DIVISIONS and any(map(_has_function, args[1:])):
        return stand(expr)  # nothing is proved of it, and it would be long
    if not isinstance(expr, sympy.Add | sympy.Mul | sympy.floor) and not all(a.is_integer for a in args):
        return stand(expr)
    if any(map(_may_be_fraction, args)):  # no symbol, which is an integer, can stand for that part
        return stand(expr)
    return row.kernel(*(kernel_form(a, stand, stood) for a in args))


_DIVISIONS = frozenset(("FloorDiv", "CleanDiv", "CeilDiv", "ModularIndexing", "Mod", "PythonMod"))


def _has_function(divisor: sympy.Expr) -> bool:
    """Whether a divisor is more than a polynomial."""
    if not divisor.args:
        return False
    return not isinstance(divisor, sympy.Add | sympy.Mul | sympy.Pow) or any(map(_has_function, divisor.args))


def _is_power(expr: sympy.Pow) -> bool:
    """Whether a kernel computes the power; one to a negative integer stands in a ratio of which it takes the floor."""
    return bool(expr.exp.is_Integer) and kind_of(expr.base) == "int"


def _may_be_fraction(expr: sympy.Expr) -> bool:
    """Whether a number has a power as a factor or a term that kernels do not compute, and that may be a fraction."""
    if isinstance(expr, sympy.Pow):
        return not _is_power(expr) and not expr.exp.is_nonnegative
    return isinstance(expr, sympy.Add | sympy.Mul) and any(map(_may_be_fraction, expr.args))


class HostNumbers:
    """The symbols that stand for what the host computes, ``by_name`` with their expressions; each expression has one.

    ``taken`` are names that they must not have.
    """

    def __init__(self, taken: Iterable[str] = ()):
        self.by_name: dict[str, sympy.Expr] = {}
        self._taken = frozenset(taken)
        self._symbols: dict[sympy.Expr, sympy.Symbol] = {}

    def integer(self, expr: Any) -> Any:
        """An integer as kernels may have it; as it is, if nothing of it is for the host."""
        before = len(self.by_name)
        form = kernel_form(expr, self.stand, self._symbols)
        return expr if len(self.by_name) == before and not self._has_symbol(form) else form

    def real(self, expr: Any) -> Any:
        """A float as kernels may have it: a constant as it is, anything else as FloatOfBits of a symbol."""
        return FloatOfBits(self.stand(BitsOfFloat(expr))) if getattr(expr, "free_symbols", ()) else expr

    def truth(self, expr: Any) -> Any:
        """A truth value as kernels may have it: a constant as it is, anything else as a symbol that is 0 or 1."""
        return self.stand(expr) if getattr(expr, "free_symbols", ()) else expr

    def stand(self, expr: sympy.Expr) -> sympy.Symbol:
        """The symbol for a number: known to be positive, or not negative, where its range says so."""
        if expr not in self._symbols:
            name = next(n for k in count() if (n := f"h{k}") not in self._taken and n not in self.by_name)
            self._symbols[expr] = sympy.Symbol(name, integer=True, **_known(expr))
            self.by_name[name] = expr
        return self._symbols[expr]

    def name(self, stem: str) -> str:
        """``stem``, or a name like it that no symbol has."""
        while stem in self._taken or stem in self.by_name:
            stem += "_"
        return stem

    def _has_symbol(self, form: Any) -> bool:
        return any(s.name in self.by_name for s in getattr(form, "free_symbols", ()))


@lru_cache(maxsize=1 << 12)
def _known(expr: sympy.Expr) -> dict[str, bool]:
    low = bounds(expr).low
    return {"positive": True} if low >= 1 else {"nonnegative": True} if low >= 0 else {}
