"""Sizes known only at run time: their tidy form, their text, their value.

A size is an ``int`` or a sympy expression of integers, symbols, ``+ - * **``, ``floor``, ``Mod``, ``Max`` and ``Min``.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import floor, prod
from typing import Any

import sympy

from keel.errors import KeelError
from keel.types import Dim, as_dim

Assume = str
"""What a symbol is known to be: ``>= 1`` (a size), ``>= 0``, or ``any``."""

# PyTorch has sympy functions of its own; they are told by name, for their module is private.
_FOREIGN: Mapping[str, Callable[..., Any]] = {
    "FloorDiv": lambda a, b: sympy.floor(a / b),
    "CleanDiv": lambda a, b: sympy.floor(a / b),
    "CeilDiv": lambda a, b: -sympy.floor(-a / b),
    "ModularIndexing": lambda a, b, n: sympy.Mod(sympy.floor(a / b), n),
    "PythonMod": sympy.Mod,
    "Mod": sympy.Mod,
    "Max": sympy.Max,
    "Min": sympy.Min,
    "PowByNatural": lambda a, n: a ** n,
    "Identity": lambda a: a,
    "ceiling": lambda a: -sympy.floor(-a),
}
_PLAIN = (sympy.Add, sympy.Mul, sympy.Pow, sympy.floor, sympy.Mod, sympy.Max, sympy.Min)


def tidy(d: Dim) -> Dim:
    """The canonical form of a size: expanded, PyTorch's own functions replaced by sympy's.

    Raises KeelError[no-lowering] for a function that sizes cannot have here.
    """
    return d if isinstance(d, int) else _tidy(d)


@lru_cache(maxsize=1 << 14)
def _tidy(d: sympy.Expr) -> Dim:
    return as_dim(sympy.expand(_plain(d)))


def _plain(d: sympy.Expr) -> sympy.Expr:
    if not d.args:
        return d
    args = [_plain(a) for a in d.args]
    if isinstance(d, _PLAIN):
        return d.func(*args)
    name = type(d).__name__
    if name not in _FOREIGN:
        raise KeelError("no-lowering", f"The size {d} uses {name}, which has no form in a kernel.")
    return _FOREIGN[name](*args)


def symbol(name: str, assume: Assume = ">= 1") -> sympy.Symbol:
    """The integer symbol of that name, known to be ``>= 1``, ``>= 0`` or nothing (``any``)."""
    known = {">= 1": {"positive": True}, ">= 0": {"nonnegative": True}, "any": {}}[assume]
    return sympy.Symbol(name, integer=True, **known)


def assumed(s: sympy.Symbol) -> Assume:
    """What is known of a symbol; the other way round of ``symbol``."""
    return ">= 1" if s.is_positive else ">= 0" if s.is_nonnegative else "any"


def positive(d: Dim) -> bool:
    """Whether d > 0 can be proved; False means that it is not known."""
    return d > 0 if isinstance(d, int) else _signed(d, True)


def non_negative(d: Dim) -> bool:
    """Whether d >= 0 can be proved; False means that it is not known."""
    return d >= 0 if isinstance(d, int) else _signed(d, False)


@lru_cache(maxsize=1 << 14)
def _signed(d: sympy.Expr, strictly: bool) -> bool:
    d = sympy.expand(d)
    if (d.is_positive if strictly else d.is_nonnegative) is True:
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
    value = _value(d, symbols)
    if value.denominator != 1:
        raise ValueError(f"{d} is {value} at {dict(symbols)}: not an integer.")
    return int(value)


def _value(d: Any, symbols: Mapping[str, int]) -> Fraction:
    if isinstance(d, int | sympy.Rational):
        return Fraction(int(d.numerator), int(d.denominator))
    if isinstance(d, sympy.Symbol):
        return Fraction(symbols[d.name])
    args = [_value(a, symbols) for a in d.args]
    if isinstance(d, sympy.Add):
        return sum(args, Fraction(0))
    if isinstance(d, sympy.Mul):
        return prod(args, start=Fraction(1))
    if isinstance(d, sympy.Pow):
        return args[0] ** int(args[1])
    if isinstance(d, sympy.floor):
        return Fraction(floor(args[0]))
    if isinstance(d, sympy.Mod):
        return args[0] % args[1]
    if isinstance(d, sympy.Max | sympy.Min):
        return (max if isinstance(d, sympy.Max) else min)(args)
    return _value(_plain(d), symbols)


# How tightly a text holds together: a sum, a product, a power, an atom.  // and % count as sums, so they get
# parentheses wherever they are not alone.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)


def show_dim(d: Dim, *, tight: bool = False) -> str:
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
        return join_terms([_held(t, _PRODUCT) if not _minus(t) else "-" + _held(-t, _PRODUCT)
                           for t in d.as_ordered_terms()]), _SUM
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
    return _text(_plain(d)) if type(d).__name__ in _FOREIGN else (str(d), _SUM)


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
