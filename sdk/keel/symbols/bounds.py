"""Bounds the value of an expression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy

from keel.symbols.evaluate import constant
from keel.symbols.functions import arguments_of, function_of, kind_of
from keel.symbols.ranges import ANY, TRUTH, Range


def bounds(expr: Any, known: Mapping[str, Range] | None = None) -> Range:
    """Returns a range that contains every value of ``expr``, if each symbol is in the range ``known`` for its name.

    A symbol that is not in ``known`` has the range of its sympy assumptions: positive integers begin at 1. The range
    may be wider than necessary.
    """
    try:
        return _bounds(expr, known or {})
    except (OverflowError, ValueError, ZeroDivisionError):  # an end without a value
        return ANY


def _bounds(expr: Any, known: Mapping[str, Range]) -> Range:
    value = constant(expr)
    if value is not None:
        return ANY if math.isnan(value) else Range(value, value)
    if isinstance(expr, sympy.Symbol):
        return known.get(expr.name) or _assumed(expr)
    row = function_of(expr)
    if row is None:
        return ANY
    range = row.bounds(*(_bounds(a, known) for a in arguments_of(expr)))
    if math.isnan(range.low) or math.isnan(range.high):
        return ANY
    return TRUTH if kind_of(expr) == "bool" and range == ANY else range


def _assumed(symbol: sympy.Symbol) -> Range:
    least = 1 if symbol.is_integer else 0
    return Range(least) if symbol.is_positive else Range(0) if symbol.is_nonnegative else ANY
