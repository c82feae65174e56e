"""Sizes known only at run time: their tidy form, their text, their value.

A size is an ``int`` or a sympy expression. In kernels it is one of integers, symbols, ``+ - * **``, ``floor``, ``Mod``,
``Max`` and ``Min``; symbols stand for whatever else the host computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sympy

from keel.symbols import bounds, exact, kernel_form
from keel.types import Dim, as_dim

Assume = str
"""What a symbol is known to be: ``>= 1`` (a size), ``>= 0``, or ``any``."""


def canonicalize(d: Dim) -> Dim:
    """The canonical form of a size: expanded, PyTorch's own functions replaced by sympy's where kernels have those.

    Other functions, and what they are applied to, stay as they are.
    """
    return d if isinstance(d, int) else _tidy(d)


@lru_cache(maxsize=1 << 14)
def _tidy(d: sympy.Expr) -> Dim:
    names: dict[sympy.Expr, sympy.Dummy] = {}

    def stand(part: sympy.Expr) -> sympy.Dummy:
        return names.setdefault(part, sympy.Dummy(integer=True))

    found = sympy.expand(kernel_form(d, stand))
    return as_dim(found.xreplace({name: part for part, name in names.items()}))


def symbol(name: str, assume: Assume = ">= 1") -> sympy.Symbol:
    """The integer symbol of that name, known to be ``>= 1``, ``>= 0`` or nothing (``any``)."""
    known = {">= 1": {"positive": True}, ">= 0": {"nonnegative": True}, "any": {}}[assume]
    return sympy.Symbol(name, integer=True, **known)


def assumption_of(s: sympy.Symbol) -> Assume:
    """What is known of a symbol; the other way round of ``symbol``."""
    return ">= 1" if s.is_positive else ">= 0" if s.is_nonnegative else "any"


def is_positive(d: Dim) -> bool:
    """Whether d > 0 can be proved; False means that it is not known."""
    return d > 0 if isinstance(d, int) else _signed(d, True)


def non_negative(d: Dim) -> bool:
    """Whether d >= 0 can be proved; False means that it is not known."""
    return d >= 0 if isinstance(d, int) else _signed(d, False)


@lru_cache(maxsize=1 << 14)
def _signed(d: sympy.Expr, strictly: bool) -> bool:
    d = sympy.sympify(canonicalize(d))
    if (d.is_positive if strictly else d.is_nonnegative) is True or bounds(d).low >= int(strictly):
        return True
    # A polynomial in s >= 1 is one in t = s - 1 >= 0, whose sign is plain where no coefficient is negative.
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


# How tightly a text holds together: a sum, a product, a power, an atom.  // and % count as sums, so they get
# parentheses wherever they are not alone.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)


def format_size(d: Dim, *, tight: bool = False) -> str:
    """The text of a size, as ``loops.text`` parses it; ``tight`` puts it in parentheses unless it is one word."""
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
    """``a + b - c`` from ``a``, ``b`` and ``-c``."""
    text = terms[0] if terms else "0"
    for t in terms[1:]:
        text += f" - {t[1:]}" if t.startswith("-") else f" + {t}"
    return text
