"""Numbers that the host computes for kernels.

A kernel's sizes are integers, symbols, sums, products, powers, floors, remainders and extremes. Whatever else a size
has in it is computed on the host before the launch, and the kernel is given a symbol that stands for it. A float is
given as the integer that has its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import sympy

from keel.symbols.bounds import bounds
from keel.symbols.functions import arguments_of, function_of, kind_of
from keel.symbols.symbol_names import free_symbols

Stand = Callable[[sympy.Expr], sympy.Expr]


class BitsOfFloat(sympy.Function):  # type: ignore[misc]
    """The int64 that has the bits of a float64."""

    nargs = (1,)
    is_integer = True


class FloatOfBits(sympy.Function):  # type: ignore[misc]
    """The float64 that has the bits of an int64."""

    nargs = (1,)
    is_real = True


def kernel_form(expr: Any, stand: Stand) -> Any:
    """``expr``, an integer, in the functions that kernels have; ``stand`` gives the symbol for what is in none."""
    form = _without_host(expr)
    return _form(expr, stand, {}, {}) if form is None else form


def _form(expr: Any, stand: Stand, stood: Mapping[sympy.Expr, sympy.Expr], forms: dict[sympy.Expr, Any]) -> Any:
    """The same; parts that are ``stood`` for already are replaced, too.  ``forms`` holds those of other parts: sizes of
    deep networks hold the same part thousands of times.
    """
    if expr in stood:
        return stood[expr]
    if isinstance(expr, int) or not expr.args:
        return expr
    if expr not in forms:
        parts = _parts(expr)
        forms[expr] = (
            stand(expr) if parts is None else _made_of(expr, tuple(_form(p, stand, stood, forms) for p in parts))
        )
    return forms[expr]


@lru_cache(maxsize=1 << 14)
def _without_host(expr: Any) -> Any:
    """The kernel form of what the host computes no part of; None for anything else."""
    if isinstance(expr, int) or not expr.args:
        return expr
    forms = None if (parts := _parts(expr)) is None else tuple(map(_without_host, parts))
    return None if forms is None or None in forms else _made_of(expr, forms)


@lru_cache(maxsize=1 << 14)
def _made_of(expr: sympy.Expr, forms: tuple[Any, ...]) -> Any:
    """The kernel form of an expression, from those of its parts."""
    if isinstance(expr, sympy.Pow):
        return expr.func(*forms, expr.exp)
    row = function_of(expr)
    assert row is not None and row.kernel is not None
    return row.kernel(*forms)


@lru_cache(maxsize=1 << 14)
def _parts(expr: sympy.Expr) -> Sequence[Any] | None:
    """The integers that a kernel computes ``expr`` from; None if the host computes it."""
    if isinstance(expr, sympy.Pow):
        return (expr.base,) if _is_power(expr) else None
    row = function_of(expr)
    args = arguments_of(expr)
    if row is None or row.kernel is None or any(kind_of(a) != "int" for a in (expr, *args)):
        return None
    if type(expr).__name__ in _DIVISIONS and any(map(_has_function, args[1:])):
        return None  # nothing is proved of it, and it would be long
    if not isinstance(expr, sympy.Add | sympy.Mul | sympy.floor) and not all(a.is_integer for a in args):
        return None
    if any(map(_may_be_fraction, args)):  # no symbol, which is an integer, can stand for that part
        return None
    return args


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

    def __init__(self, reserved: Iterable[str] = ()):
        self.by_name: dict[str, sympy.Expr] = {}
        self._taken = frozenset(reserved)
        self._symbols: dict[sympy.Expr, sympy.Symbol] = {}
        self._forms: dict[sympy.Expr, Any] = {}

    def integer(self, expr: Any) -> Any:
        """An integer as kernels may have it; as it is, if nothing of it is for the host."""
        if not self._symbols and _without_host(expr) is not None:
            return expr
        before = len(self.by_name)
        form = _form(expr, self.stand, self._symbols, self._forms)
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
            self._forms.clear()  # which may hold it
        return self._symbols[expr]

    def name(self, stem: str) -> str:
        """``stem``, or a name like it that no symbol has."""
        while stem in self._taken or stem in self.by_name:
            stem += "_"
        return stem

    def _has_symbol(self, form: Any) -> bool:
        return not self.by_name.keys().isdisjoint(free_symbols(form))


@lru_cache(maxsize=1 << 12)
def _known(expr: sympy.Expr) -> dict[str, bool]:
    low = bounds(expr).low
    return {"positive": True} if low >= 1 else {"nonnegative": True} if low >= 0 else {}
