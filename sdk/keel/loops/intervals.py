"""Intervals of integers: what scalar ops make of them, and which ops fail for some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Interval = tuple[int, int]
"""The least and the largest value, both inclusive."""

DIVISIONS = frozenset({"floordiv", "truncdiv", "mod", "fmod"})
"""Scalar ops that a processor may stop at if an integer divisor is 0."""
INTERVALS: Mapping[str, Callable[..., Interval]] = {
    "cast": lambda x: x,
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
}
"""The interval of a scalar op on small integers, from those of its operands."""
