"""The text of an expression in Python and in C.

Both are in parentheses unless they are one word, and compute what ``evaluate`` does. Names of symbols may come from a
file, so only identifiers that mean nothing else are printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy

from keel.errors import KeelError
from keel.symbols import functions
from keel.symbols.evaluate import constant, unknown_function
from keel.symbols.functions import Kind, Value, arguments_of, function_of, kind_of
from keel.symbols.symbol_names import checked_name

PYTHON_NAMES: Mapping[str, Any] = {
    "Fraction": Fraction,
    "abs": abs,
    "bits_of_float": functions.bits_of_float,
    "bool": bool,
    "dense": functions.dense,
    "float": float,
    "float_of_bits": functions.float_of_bits,
    "float_power": functions.float_power,
    "greatest": functions.greatest,
    "int": int,
    "least": functions.least,
    "len": len,
    "math": math,
    "power": functions.power,
    "round": round,
    "sign": functions.sign,
    "whole": functions.as_integer,
}
"""What a Python text uses: the names that have to be there where it is run."""

Names = Callable[[str], str]

C_PRELUDE = """\
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;

static inline i64 least(i64 x, i64 y) { return x < y ? x : y; }
static inline i64 most(i64 x, i64 y) { return x > y ? x : y; }
static inline double float_least(double x, double y) { return y < x ? y : x; }
static inline double float_most(double x, double y) { return y > x ? y : x; }
static inline i64 size_div(i64 x, i64 by) { return x / by - (x % by != 0 && (x % by < 0) != (by < 0)); }
static inline i64 size_mod(i64 x, i64 by) { return x - by * size_div(x, by); }
static inline i64 size_shift(i64 x, i64 by) { return by > 63 ? (x < 0 ? -1 : 0) : x >> by; }

static inline i64 size_pow(i64 x, i64 n) {
    i64 result = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1) result *= x;
        if (n > 1) x *= x;
    }
    return result;
}

// As CPython's float_rem and _float_div_mod (Objects/floatobject.c).
static inline double float_mod(double x, double by) {
    double rest = fmod(x, by);
    if (rest != 0) return (by < 0) != (rest < 0) ? rest + by : rest;
    return copysign(0.0, by);
}

static inline double float_div(double x, double by) {
    double rest = fmod(x, by), ratio = (x - rest) / by;
    if (rest != 0 && (by < 0) != (rest < 0)) ratio -= 1;
    if (ratio == 0) return copysign(0.0, x / by);
    double down = floor(ratio);
    return ratio - down > 0.5 ? down + 1 : down;
}

static inline i64 bits_of_float(double x) { i64 n; memcpy(&n, &x, 8); return n; }
static inline double float_of_bits(i64 n) { double x; memcpy(&x, &n, 8); return x; }
static inline double float_true_div(double x, double by) { return x / by; }

// The quotient to 55 bits or more, its last bit set if a rest is left, rounds as the exact one does (round to odd).
static inline double int_true_div(i64 x, i64 by) {
    uint64_t over = x < 0 ? -(uint64_t)x : (uint64_t)x, under = by < 0 ? -(uint64_t)by : (uint64_t)by;
    int bits = 55, shift;
    if (over == 0 || under == 0) return (double)x / (double)by;
    for (uint64_t n = under; n; n >>= 1) bits++;
    for (uint64_t n = over; n; n >>= 1) bits--;
    shift = bits > 0 ? bits : 0;
    unsigned __int128 wide = (unsigned __int128)over << shift;
    uint64_t quotient = (uint64_t)(wide / under);
    if (wide % under) quotient |= 1;
    double result = ldexp((double)quotient, -shift);
    return (x < 0) != (by < 0) ? -result : result;
}
"""
"""The functions that C texts use; C99 and C++, with GCC's 128-bit integers."""


def python_text(expr: Any, names: Names | None = None, kind: Kind | None = None) -> str:
    """Returns a Python expression that computes ``expr``. Variables have the names of its symbols, or those in
    ``names``.

    The expression needs ``PYTHON_NAMES`` in its globals. ``kind`` converts the result, if the expression's own type is
    another. Raises KeelError[bad-graph] for a name that is not an identifier or is one of PYTHON_NAMES, and for an
    unknown function.
    """
    text = _Python(names or str).text(expr)
    own: Kind | None = None if is_fractional(expr) else kind_of(expr)
    if own is None:
        text = f"{kind or 'whole'}({text})"
    elif kind is not None and own != kind:
        text = f"{kind}({text})"
    return text


def c_text(expr: Any, names: Names | None = None, kind: Kind | None = None) -> str:
    """Returns a C expression of type int64, double or int (for truth values) that computes ``expr``, named likewise.

    It uses the functions of ``C_PRELUDE``. Raises KeelError[bad-graph] as ``python_text`` does, and
    KeelError[no-lowering] for a function that C does not have, or a fraction of integers that may not be an integer.
    """
    text = _C(names or str).text(expr)
    if kind is None or kind == kind_of(expr):
        return text
    return {"int": f"(i64){text}", "float": f"(double){text}", "bool": f"({text} != 0)"}[kind]


def is_fractional(expr: Any) -> bool:
    """True if the value may be a Fraction that is not an integer."""
    if isinstance(expr, sympy.Rational):
        return not isinstance(expr, sympy.Integer)
    if isinstance(expr, sympy.Pow):
        return kind_of(expr) == "int" and not expr.exp.is_nonnegative
    return isinstance(expr, sympy.Add | sympy.Mul) and kind_of(expr) == "int" and any(map(is_fractional, expr.args))


class _Python:
    def __init__(self, names: Names):
        self.names = names

    def text(self, expr: Any) -> str:
        value = constant(expr)
        if value is not None:
            return self.literal(value)
        if isinstance(expr, sympy.Symbol):
            return checked_name(self.names(expr.name), PYTHON_NAMES)
        row = function_of(expr)
        if row is None:
            raise unknown_function(expr)
        if isinstance(expr, sympy.floor) and kind_of(expr.args[0]) == "int":
            over, under = sympy.fraction(sympy.together(expr.args[0]))
            return f"({self.text(over)} // {self.text(under)})" if under != 1 else self.text(over)
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
            return f"({self.text(expr.base)} ** {expr.exp})"
        return row.python([self.text(a) for a in arguments_of(expr)])

    @staticmethod
    def literal(value: Value) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "(-math.inf)"
        if isinstance(value, Fraction):
            return f"Fraction({value.numerator}, {value.denominator})"
        return repr(value) if value >= 0 else f"({value!r})"


class _C:
    def __init__(self, names: Names):
        self.names = names

    def text(self, expr: Any) -> str:
        value = constant(expr)
        if value is not None:
            return self.literal(value)
        if isinstance(expr, sympy.Symbol):
            return checked_name(self.names(expr.name))
        row = function_of(expr)
        if row is None:
            raise unknown_function(expr)
        if isinstance(expr, sympy.floor) and kind_of(expr.args[0]) == "int":
            over, under = sympy.fraction(sympy.together(expr.args[0]))
            return f"size_div({self.text(over)}, {self.text(under)})" if under != 1 else self.text(over)
        if is_fractional(expr):
            return self.ratio(expr)
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 0 < expr.exp < 5 and kind_of(expr.base) == "int":
            return f"({' * '.join([self.text(expr.base)] * int(expr.exp))})"
        if isinstance(expr, sympy.Pow) and expr.exp == sympy.S.Half:
            return f"sqrt((double){self.text(expr.base)})"
        if row.c is None:
            raise KeelError("no-lowering", f"{expr} applies {type(expr).__name__}, which has no form in C.")
        args = arguments_of(expr)
        return row.c([self.text(a) for a in args], [kind_of(a) for a in args])

    def ratio(self, expr: Any) -> str:
        """An integer that is written as a fraction; nothing is left over."""
        over, under = sympy.fraction(sympy.together(expr))
        if expr.is_integer is False or (under == 1 and is_fractional(over)):
            raise KeelError("no-lowering", f"{expr} is a fraction of integers, which has no form in C.")
        return self.text(over) if under == 1 else f"({self.text(over)} / {self.text(under)})"

    @staticmethod
    def literal(value: Value) -> str:
        if isinstance(value, bool):
            return str(int(value))
        if isinstance(value, float) and not math.isfinite(value):
            return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
        if isinstance(value, Fraction):
            return f"({value.numerator}.0 / {value.denominator}.0)"
        return repr(value) if value >= 0 else f"({value!r})"
