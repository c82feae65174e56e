"""Evaluates an expression exactly as Python and PyTorch do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy
from sympy.logic.boolalg import BooleanAtom

from keel.errors import KeelError
from keel.symbols.functions import Kind, Value, arguments_of, as_integer, function_of


def evaluate(expr: Any, values: Mapping[str, int | float | bool], kind: Kind | None = None) -> Any:
    """Returns the value of ``expr`` as an int, float or bool; ``values`` has the value of each symbol by name.

    Integers have any size, floats are float64, and a fraction that is not an integer becomes a float. ``kind`` converts
    the result: sympy turns a sum or product of floats that is 0 into an integer. Raises KeyError for a symbol without a
    value, and ZeroDivisionError, OverflowError or ValueError as Python does. Raises KeelError[bad-graph] for a function
    that is not in the table.
    """
    value = as_integer(_value(expr, values))
    value = float(value) if isinstance(value, Fraction) else value
    return value if kind is None else {"int": int, "float": float, "bool": bool}[kind](value)


def exact(expr: Any, values: Mapping[str, int | float | bool]) -> Value:
    """Returns the same, but keeps fractions."""
    return as_integer(_value(expr, values))


def constant(expr: Any) -> Value | None:
    """Returns the value of a number or truth value, or None for a symbol or a function."""
    if isinstance(expr, bool | int | float):
        return expr
    if isinstance(expr, BooleanAtom):
        return bool(expr)
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Rational):
        return Fraction(int(expr.p), int(expr.q))
    if isinstance(expr, sympy.Float | sympy.NumberSymbol):
        return float(expr)
    name = type(expr).__name__
    if name in _INFINITE:
        return _INFINITE[name]
    return None


_INFINITE = {
    "Infinity": math.inf,
    "NegativeInfinity": -math.inf,
    "IntInfinity": math.inf,
    "NaN": math.nan,
    "NegativeIntInfinity": -math.inf,
    "ComplexInfinity": math.nan,
}
"""Infinities and NaN, by the names of their classes.  Two are PyTorch's own."""


def _value(expr: Any, values: Mapping[str, int | float | bool]) -> Any:
    known = constant(expr)
    if known is not None:
        return known
    if isinstance(expr, sympy.Symbol):
        return values[expr.name]
    row = function_of(expr)
    if row is None:
        raise unknown_function(expr)
    if isinstance(expr, sympy.Piecewise):
        return _first(expr, values)
    if type(expr).__name__ in ("Where", "ITE"):  # the other branch may raise
        holds, then, other = expr.args
        return _value(then if _value(holds, values) else other, values)
    return as_integer(row.value(*(_value(a, values) for a in arguments_of(expr))))


def _first(expr: sympy.Piecewise, values: Mapping[str, int | float | bool]) -> Any:
    for value, holds in expr.args:
        if _value(holds, values):
            return _value(value, values)
    return math.nan


def unknown_function(expr: Any) -> KeelError:
    return KeelError(
        "bad-graph",
        f"{expr} applies {type(expr).__name__}, which the table of symbolic functions lacks.",
        do="Report it to the authors of Keel, with the program and the version of PyTorch.",
    )
