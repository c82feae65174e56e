"""Bounds how large an expression of sizes can become, from its data alone, before anything computes with it.

``10 ** 10 ** 10`` has few characters, but no machine can hold its value. A product of forty sums has a million million
terms once it is expanded, and PyTorch expands it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keel.documents import Item, shown


@dataclass(frozen=True)
class Limits:
    """The most bits of a value, terms of an expression once expanded, parts of an expression, and arguments of a
    function.
    """

    bits: int = 4096
    terms: int = 512
    parts: int = 512
    arguments: int = 64


SAVED = Limits()
"""The limits of a saved graph."""
COMPILED = Limits(bits=8192, terms=2048, parts=4096, arguments=1024)
"""The limits of a compiled graph, which also computes with the sizes of many inputs at once."""
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_SUMS = frozenset({"Add"})


@dataclass(frozen=True)
class Extent:
    """Bounds of an expression: the ``bits`` of its value, its ``terms`` once expanded, and its ``parts``."""

    bits: int
    terms: int = 1
    parts: int = 1


def check(size: Item, symbols: Mapping[str, int], limits: Limits = SAVED) -> None:
    """Raises Malformed unless ``size`` is an integer, a number, a symbol of ``symbols``, or a list of a function's name
    and arguments of these kinds; or if any of them becomes too large. ``symbols`` has the bits of each symbol's value.
    """
    _extent(size, symbols, limits)


def _extent(size: Item, symbols: Mapping[str, int], limits: Limits) -> Extent:
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
    word, *args = size.items(limits.arguments + 1) or [size]
    function = word.text(64)
    if not args:
        size.refuse(f"{function!r} has no arguments.")
    inner = [_extent(a, symbols, limits) for a in args]
    extent = _of_call(function, args, inner, limits)
    for what in ("bits", "terms", "parts"):
        if getattr(extent, what) > getattr(limits, what):
            size.refuse(f"It may have more than {getattr(limits, what)} {what}.")
    return extent


def _of_call(function: str, args: Sequence[Item], inner: Sequence[Extent], limits: Limits) -> Extent:
    """The extent of a function of arguments with these extents, capped at what is too large in any case."""
    parts = 1 + sum(e.parts for e in inner)
    bits, terms = max(e.bits for e in inner), 1
    if function in _POWERS and len(args) == 2:
        exponent = _exponent(args[1], inner[1], limits)
        bits = min(inner[0].bits * max(exponent, 1) + exponent * (function == "LShift"), limits.bits + 1)
        terms = min(inner[0].terms ** exponent, limits.terms + 1)
    elif function in _SUMS:
        bits, terms = bits + len(args), sum(e.terms for e in inner)
    else:
        bits = sum(e.bits for e in inner)
        if function == "Mul":
            for e in inner:
                terms = min(terms * e.terms, limits.terms + 1)
    return Extent(bits, terms, parts)


def _exponent(item: Item, extent: Extent, limits: Limits) -> int:
    """Returns a bound of the exponent's absolute value, capped at a value that is too large in any case."""
    if isinstance(item.value, int | float):
        return min(math.ceil(abs(item.value)), limits.bits + 1)
    return min(1 << min(extent.bits, 20), limits.bits + 1)
