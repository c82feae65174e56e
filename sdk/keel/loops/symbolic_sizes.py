"""Sizes known only at run time: their canonical form, their text, their value.

A size is an ``int`` or a sympy expression. In kernels it is made of integers, symbols, ``+ - * **``, ``floor``,
``Mod``, ``Max`` and ``Min``. Symbols stand for everything else, which the host computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sympy

from keel.symbols import bounds, exact, kernel_form
from keel.types import Dim, as_dim

Assume = str
"""The assumption on a symbol: ``>= 1`` (a size), ``>= 0``, or ``any``."""


def canonicalize(d: Dim) -> Dim:
    """The canonical form of a size: expanded, with PyTorch's functions replaced by sympy's if kernels have those. Other
    functions and their arguments are left unchanged.
    """
    return d if isinstance(d, int) else _tidy(d)


@lru_cache(maxsize=1 << 14)
def _tidy(d: sympy.Expr) -> Dim:
    names: dict[sympy.Expr, sympy.Dummy] = {}

    def stand(part: sympy.Expr) -> sympy.Dummy:
        return names.setdefault(part, sympy.Dummy(integer=True))

    result = sympy.expand(kernel_form(d, stand))
    return as_dim(result.xreplace({name: part for part, name in names.items()}))


def symbol(name: str, assume: Assume = ">= 1") -> sympy.Symbol:
    """The integer symbol of that name, assumed to be ``>= 1``, ``>= 0`` or ``any``."""
    known = {">= 1": {"positive": True}, ">= 0": {"nonnegative": True}, "any": {}}[assume]
    return sympy.Symbol(name, integer=True, **known)


def assumption_of(s: sympy.Symbol) -> Assume:
    """The assumption that ``symbol`` made the symbol with."""
    return ">= 1" if s.is_positive else ">= 0" if s.is_nonnegative else "any"


def is_positive(d: Dim) -> bool:
    """True if d > 0 can be proved. False means that it is unknown."""
    return d > 0 if isinstance(d, int) else _signed(d, True)


def non_negative(d: Dim) -> bool:
    """True if d >= 0 can be proved. False means that it is unknown."""
    return d >= 0 if isinstance(d, int) else _signed(d, False)


@lru_cache(maxsize=1 << 14)
def _signed(d: sympy.Expr, strictly: bool) -> bool:
    d = sympy.sympify(canonicalize(d))
    if (d.is_positive if strictly else d.is_nonnegative) is True or bounds(d).low >= int(strictly):
        return True
    # Substitute t = s - 1 >= 0 for each s >= 1. A polynomial in t without negative coefficients is not negative.
    shift = {s: 1 + sympy.Dummy(integer=True, nonnegative=True) for s in d.free_symbols if s.is_positive}
    terms = sympy.Add.make_args(sympy.expand(d.xreplace(shift)))
    if not all(t.is_nonnegative for t in terms):
        return False
    return not strictly or any(t.is_positive for t in terms)


def evaluate(d: Dim, symbols: Mapping[str, int]) -> int:
    """The value of ``d`` where each symbol has the given value.  Raises KeyError for a symbol without one."""
    if isinstance(d, int):
        return d
    value = exact(d, symbols)
    if not isinstance(value, int):
        raise ValueError(f"{d} is {value} at {dict(symbols)}: not an integer.")
    return int(value)


# The precedence of a text: a sum, a product, a power, an atom. // and % count as sums, so they get parentheses unless
# they stand alone.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)


def format_size(d: Dim, *, tight: bool = False) -> str:
    """The text of a size, as ``loops.parser`` reads it. ``tight`` puts it in parentheses unless it is one word."""
    return str(d) if isinstance(d, int) and d >= 0 else _held(d, _ATOM if tight else _SUM)


def _held(d: Any, need: int) -> str:
    text, level = _text(sympy.sympify(d))
    return text if level >= need else f"({text})"


@lru_cache(maxsize=1 << 14)
def _text(d: Any) -> tuple[str, int]:
    if isinstance(d, sympy.Rational):
        return str(d), _ATOM if d.is_Integer and d >= 0 else _SUM
    if isinstance(d, sympy.Symbol):
        return str(d.name), _ATOM
    if isinstance(d, sympy.Add):
        return join_terms(
            [_held(t, _PRODUCT) if not _minus(t) else "-" + _held(-t, _PRODUCT) for t in d.as_ordered_terms()]
        ), _SUM
    if isinstance(d, sympy.Mul):
        return _product(d)
    if isinstance(d, sympy.Pow) and d.exp.is_Integer and d.exp > 0:
        return f"{_held(d.base, _ATOM)}**{d.exp}", _POWER
    if isinstance(d, sympy.floor):
        over, under = d.args[0].as_numer_denom()
        return f"{_held(over, _ATOM)} // {_held(under, _ATOM)}", _SUM
    if isinstance(d, sympy.Mod):
        return f"{_held(d.args[0], _ATOM)} % {_held(d.args[1], _ATOM)}", _SUM
    if isinstance(d, sympy.Max | sympy.Min):
        word = "max" if isinstance(d, sympy.Max) else "min"
        return f"{word}({', '.join(sorted(_held(a, _SUM) for a in d.args))})", _ATOM
    form = kernel_form(d, lambda part: sympy.Symbol(str(part), integer=True))
    return _text(form) if form != d else (str(d), _SUM)


def _minus(t: Any) -> bool:
    return bool(t.as_coeff_Mul()[0] < 0)


def _product(d: Any) -> tuple[str, int]:
    if _minus(d):
        return "-" + _held(-d, _PRODUCT), _SUM
    c, rest = d.as_coeff_Mul()
    factors = [_held(f, _POWER) for f in rest.as_ordered_factors()]
    if c.p != 1:
        factors.insert(0, str(c.p))
    return "*".join(factors) + (f"/{c.q}" if c.q != 1 else ""), _PRODUCT


def join_terms(terms: list[str]) -> str:
    """Joins ``a``, ``b`` and ``-c`` to ``a + b - c``."""
    text = terms[0] if terms else "0"
    for t in terms[1:]:
        text += f" - {t[1:]}" if t.startswith("-") else f" + {t}"
    return text
