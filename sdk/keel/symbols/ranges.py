"""Ranges of numbers, and what the functions of the symbolic language make of them.

A range may be wider than necessary, but contains every value. Ends are exact where they are integers; infinities are
floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

Number = int | float | Fraction


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from ``low`` to ``high``, both included."""

    low: Number = -math.inf
    high: Number = math.inf

    @property
    def non_negative(self) -> bool:
        return self.low >= 0


Bounds = Callable[..., Range]
ANY = Range()
TRUTH = Range(0, 1)


def _product(a: Number, b: Number) -> Number:
    return 0 if a == 0 or b == 0 else a * b  # 0 * inf is 0 here: an end that is never reached


def added(*args: Range) -> Range:
    """Returns the range of a sum; the sum of two infinities of opposite sign is not an end."""
    return Range(sum(a.low for a in args), sum(a.high for a in args))


def multiplied(*args: Range) -> Range:
    product = args[0]
    for a in args[1:]:
        ends = [_product(x, y) for x in (product.low, product.high) for y in (a.low, a.high)]
        product = Range(min(ends), max(ends))
    return product


def divided(a: Range, b: Range) -> Range:
    """The range of a quotient whose divisor is positive."""
    if b.low <= 0:
        return ANY
    ends = [
        0 if math.isinf(y) else x if math.isinf(x) else Fraction(x) / Fraction(y)
        for x in (a.low, a.high)
        for y in (b.low, b.high)
    ]
    return _outward(Range(min(ends), max(ends)))


def _outward(r: Range) -> Range:
    """Ends that rounding to float64 does not pass."""

    def rounded(end: Number, away: float) -> Number:
        if not isinstance(end, Fraction) or end.denominator == 1:
            return end
        return 0 if end == 0 else math.nextafter(float(end), away)

    return Range(rounded(r.low, -math.inf), rounded(r.high, math.inf))


def floor_divided(a: Range, b: Range) -> Range:
    return increasing(math.floor)(divided(a, b))


def ceil_divided(a: Range, b: Range) -> Range:
    return increasing(math.ceil)(divided(a, b))


def remainder(a: Range, b: Range) -> Range:
    """Python's remainder, which has the sign of its divisor."""
    if b.low <= 0:
        return ANY
    return Range(0, b.high if not a.non_negative else min(a.high, b.high))


def shifted_remainder(a: Range, by: Range, modulus: Range) -> Range:
    return remainder(floor_divided(a, by), modulus)


def increasing(f: Callable[[Number], Number]) -> Callable[[Range], Range]:
    """The range of a function that never decreases."""

    def of(r: Range) -> Range:
        return Range(*(end if math.isinf(end) else f(end) for end in (r.low, r.high)))

    return of


def power(a: Range, b: Range) -> Range:
    if a.low >= 1 and b.low >= 0:
        return Range(1)
    if b.low == b.high and isinstance(b.low, int) and b.low >= 0 and b.low % 2 == 0:
        return Range(0)
    return Range(0) if a.low > 0 or (a.low >= 0 and b.low >= 0) else ANY


def greatest(*args: Range) -> Range:
    return Range(max(a.low for a in args), max(a.high for a in args))


def least(*args: Range) -> Range:
    return Range(min(a.low for a in args), min(a.high for a in args))


def either(*args: Range) -> Range:
    """The range of a value that is one of several."""
    return Range(min(a.low for a in args), max(a.high for a in args))


def absolute(a: Range) -> Range:
    if a.non_negative:
        return a
    return Range(0 if a.high >= 0 else -a.high, max(-a.low, a.high))


def chosen(_: Range, then: Range, other: Range) -> Range:
    return either(then, other)


def cases(*args: Range) -> Range:
    """Returns the range of a choice: value, condition, value, condition ..."""
    return either(*args[::2])


def anything(*args: Range) -> Range:
    return ANY


def always(low: Number, high: Number = math.inf) -> Bounds:
    return lambda *args: Range(low, high)


def sign_kept(r: Range) -> Range:
    """Returns the range of a function that is 0 at 0 and never decreases."""
    return Range(0 if r.low >= 0 else -math.inf, 0 if r.high <= 0 else math.inf)


def logarithm(r: Range) -> Range:
    return Range(0) if r.low >= 1 else ANY


def left_shifted(a: Range, by: Range) -> Range:
    return Range(a.low) if a.low >= 0 and by.low >= 0 else ANY


def right_shifted(a: Range, by: Range) -> Range:
    return Range(0, a.high) if a.low >= 0 and by.low >= 0 else ANY


def bitwise_and(*args: Range) -> Range:
    tops = [a.high for a in args if a.non_negative]
    return Range(0, min(tops)) if tops else ANY


def bitwise_or(*args: Range) -> Range:
    return Range(0) if all(a.non_negative for a in args) else ANY


def same(*args: Range) -> Range:
    return args[0]
