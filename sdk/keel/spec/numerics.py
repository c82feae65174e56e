"""What is known of an operator as a function of numbers, beyond its clauses.

Oracles derive bounds from these facts. Those that loosen a judgement (``steps``, ``overflows``, ``series``,
``free_zero_sign``) are stated wherever they hold; the others tighten one, and may be left out.
"""
from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Numerics:
    """Facts about the function that an operator computes of each element, or of the elements that it reduces."""

    steps: bool = False
    """It jumps: where an operand is too inexact to tell the side of a jump, nothing is known of the result."""
    monotone: bool = False
    """It never decreases, so that between two operands its results lie between the two results."""
    lipschitz: float | None = None
    """It changes by no more than this for a change of 1. For functions that are neither monotone nor convex."""
    overflows: bool = False
    """Finite operands, poles left out, may give more than a dtype holds."""
    exact_zero: bool = False
    """A result is 0 only where the exact one is: none underflows to 0 (of sums: Higham 2002, problem 2.19)."""
    series: bool = False
    """It is not among the functions of IEEE 754-2019, section 9.2, and is computed from series: near its roots a result
    is as good as the argument.
    """
    free_zero_sign: bool = False
    """The clauses leave the sign of a zero open, or do not speak of it."""
    rounded_once: bool = False
    """16-bit results are computed in float32 and rounded once, to the nearest."""
    identities: tuple[float | None, ...] = ()
    """For each operand the number that leaves the other operand as it is, or None. The negative of that number may
    change the sign of the other, and nothing else.
    """
    keeps_dyadics: bool = False
    """Of multiples of a power of two, small enough, it makes such a multiple, so that nothing is to be rounded."""
    zero_absorbs: bool = False
    """It is 0 wherever one operand is 0 and the others are finite."""

    def __post_init__(self) -> None:
        if self.steps and self.lipschitz is not None:
            raise ValueError("A function with steps has no Lipschitz constant.")
        if self.lipschitz is not None and not self.lipschitz > 0:
            raise ValueError(f"A Lipschitz constant is more than 0, not {self.lipschitz}.")
        if self.series and self.rounded_once:
            raise ValueError("What is computed from series is not rounded once.")
        if any(x is not None and not 0 <= x < math.inf for x in self.identities):
            raise ValueError(f"Identities are finite and not negative, unlike some of {self.identities}.")


UNSTATED = Numerics()
"""Nothing is stated."""
