"""Bounds how large an expression of sizes can become, from its data alone, before anything computes with it.

``10 ** 10 ** 10`` has few characters, but no machine can hold its value. A product of forty sums has a million million
terms once it is expanded, and PyTorch expands it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from keel.documents import Item, shown

MOST_BITS, MOST_TERMS, MOST_PARTS, MOST_ARGUMENTS = 4096, 512, 512, 64
"""Limits: bits of a value, terms of an expression once expanded, parts of an expression, arguments of a function."""
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_SUMS = frozenset({"Add"})


@dataclass(frozen=True)
class Extent:
    """Bounds of an expression: the ``bits`` of its value, its ``terms`` once expanded, and its ``parts``."""

    bits: int
    terms: int = 1
    parts: int = 1


def check(size: Item, symbols: Mapping[str, int]) -> None:
    """Raises Malformed unless ``size`` is an integer, a number, a symbol of ``symbols``, or a list of a function's name
    and arguments of these kinds; or if any of them becomes too large. ``symbols`` has the bits of each symbol's value.
    """
    _extent(size, symbols)


def _extent(size: Item, symbols: Mapping[str, int]) -> Extent:
    match size.value:
        case bool():
            return Extent(1)
        case int() as value:
            size.integer()
            return Extent(value.bit_length())
        case float():
            size.number()
            return Extent(64)
        case str() as symbol:
            if symbol not in symbols:
                size.refuse(f"{shown(symbol)} is not a size.")
            return Extent(symbols[symbol])
    word, *args = size.items(MOST_ARGUMENTS + 1) or [size]
    function = word.text(64)
    if not args:
        size.refuse(f"{function!r} has no arguments.")
    inner = [_extent(a, symbols) for a in args]
    parts = 1 + sum(e.parts for e in inner)
    bits, terms = max(e.bits for e in inner), 1
    if function in _POWERS and len(args) == 2:
        exponent = _exponent(args[1], inner[1])
        bits = min(inner[0].bits * max(exponent, 1) + exponent * (function == "LShift"), MOST_BITS + 1)
        terms = min(inner[0].terms ** exponent, MOST_TERMS + 1)
    elif function in _SUMS:
        bits, terms = bits + len(args), sum(e.terms for e in inner)
    else:
        bits = sum(e.bits for e in inner)
        if function == "Mul":
            for e in inner:
                terms = min(terms * e.terms, MOST_TERMS + 1)
    for what, value, most in (("bits", bits, MOST_BITS), ("terms", terms, MOST_TERMS), ("parts", parts, MOST_PARTS)):
        if value > most:
            size.refuse(f"It may have more than {most} {what}.")
    return Extent(bits, terms, parts)


def _exponent(item: Item, extent: Extent) -> int:
    """Returns a bound of the exponent's absolute value, capped at a value that is too large in any case."""
    if isinstance(item.value, int | float):
        return min(math.ceil(abs(item.value)), MOST_BITS + 1)
    return min(1 << min(extent.bits, 20), MOST_BITS + 1)
