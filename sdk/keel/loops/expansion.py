"""Expansions of scalar ops into other scalar ops: small programs as data, each with its error bound and its source.

A program is lines of Python arithmetic over its operands ``x``, ``y``, ``z``; its last line is the result. Operators
and calls are scalar ops; ``poly(x, c0, c1, ...)`` is Horner's rule; ``cast(x, f32)`` and ``bitcast(x, i32)`` name a
dtype. A number takes the dtype of the value it meets, and ``i32(1)`` gives it one. ``inf``, ``nan`` and ``ones`` (all
bits set) are numbers too. Names of ``MACROS`` are expanded in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["f32", "f64", "float", "signed", "unsigned", "int", "number", "bool", "any"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """One way to compute ``op`` on operands of ``kind``. ``ulp`` bounds the error in units in the last place of the
    result; 0 is exact. The bound covers all finite operands whose result is a normal number, if the ops used are
    correctly rounded (nearly, in f64). ``note`` names the source of the method and its limits.
    """

    op: str
    kind: Kind
    program: str
    ulp: float
    note: str


def expansions_of(*ops: tuple[str, Kind, str, float, str]) -> tuple[Expansion, ...]:
    return tuple(Expansion(op, kind, program.strip(), ulp, note) for op, kind, program, ulp, note in ops)


MACROS: Mapping[str, tuple[tuple[str, ...], str]] = {
    # 2^n for a whole number n with a normal result.
    "pow2_f32": (("n",), "bitcast(cast((n + 127) * 8388608, i32), f32)"),
    "pow2_f64": (("n",), "bitcast(cast((n + 1023) * 4503599627370496, i64), f64)"),
    # e^-(a*a) with a*a in two parts, the first of them exact (Veltkamp's split).
    "gauss": (
        ("a", "split"),
        """
k = a * split
h = k - (k - a)
exp(-h * h) * exp((h - a) * (h + a))
""",
    ),
}
