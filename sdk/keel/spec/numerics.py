"""What is known of an operator as a function of numbers, beyond its clauses.

Oracles derive bounds from these facts. Those that loosen a judgment (``steps``, ``overflows``, ``series``,
``free_zero_sign``) are stated wherever they hold; the others tighten one, and may be left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from keel.spec.rules import ShapeRule


class Results(Enum):
    """What the elements of results are."""

    MOVED = "elements of operands, or numbers that are given, at places that no values of operands tell but indices"
    CHOSEN = "elements of operands, chosen by their order, and the places that these had"
    SUMS = "sums of products of operands' elements, in an order that is not specified"
    UNINITIALIZED = "whatever the memory held: nothing is specified, and no two runs need to agree"


@dataclass(frozen=True)
class Pole:
    """Where a function has a pole: where one operand is ``at``, or, ``every`` so far from there, up to ``most``; only
    where the operand ``negative`` is less than 0, if that is named. Operands are counted from 0.
    """

    operand: int = 0
    at: float = 0.0
    every: float | None = None
    most: float = math.inf
    negative: int | None = None


@dataclass(frozen=True)
class SplitSums:
    """Sums of g * (x - mean) may be computed as sum(g * x) - mean * sum(g).

    ``x`` and ``mean`` are parameters; ``weights`` is the shape of the gradients that are sums over the other dimensions
    of x, as those of ``mean`` are sums over its own.
    """

    x: str
    mean: str
    weights: ShapeRule


@dataclass(frozen=True)
class Numerics:
    """Facts about the function that an operator computes of each element, or of the elements that it reduces, and about
    the ways in which it may be computed.
    """

    steps: bool = False
    """It jumps: where an operand is too inexact to tell the side of a jump, nothing is known of the result."""
    monotone: bool = False
    """It never decreases, so that between two operands its results lie between the two results."""
    lipschitz: float | None = None
    """It changes by no more than this for a change of 1. For functions that are neither monotone nor convex."""
    overflows: bool = False
    """Finite operands, poles left out, may give more than a dtype holds."""
    pole: Pole | None = None
    """Where it has poles. Elsewhere, within its domain, it is monotone in each operand, or convex, but for steps."""
    cut: bool = False
    """It has a branch cut: where the first operand changes its sign beside a second one that is not positive."""
    quotient: Literal["exact", "floor", "trunc"] | None = None
    """It is, or is made of, the quotient of its two operands, rounded so: integers have none by 0, nor the least one
    by -1.
    """
    point: bool = False
    """It steps at single points, where its two operands are equal, and has one value on both sides of them."""
    interval: tuple[float, float] = (-4.0, 4.0)
    """Where most of it happens: its domain, a little beyond the ends, or where it is neither flat nor out of range."""
    finite: bool = False
    """It is defined for finite operands only, within the range that its arguments give or that follows from its
    meaning."""
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
    converts: bool = False
    """It takes elements to another dtype: it rounds, though its result is the only right one."""
    subtracts: str | None = None
    """The operand that enters the result with the opposite sign."""
    one_term_exact: bool = False
    """The sum of one element is that element."""
    results: Results | None = None
    """What its results are made of, where that is one of these."""
    updated_mean: bool = False
    """A mean on the way may be updated by one element after another (Welford 1962): each step rounds, of integers too.
    """
    scaled_and_shifted: tuple[str, ...] = ()
    """(x - mean) * s + b may be computed as x * s + (b - mean * s), as PyTorch's kernels do: the parameter x, and mean
    where that is one.
    """
    split_sums: SplitSums | None = None
    """Its gradients may be computed by the sums apart, as PyTorch's kernels do."""

    def __post_init__(self) -> None:
        if self.steps and self.lipschitz is not None:
            raise ValueError("A function with steps has no Lipschitz constant.")
        if self.lipschitz is not None and not self.lipschitz > 0:
            raise ValueError(f"A Lipschitz constant is more than 0, not {self.lipschitz}.")
        if self.series and self.rounded_once:
            raise ValueError("What is computed from series is not rounded once.")
        if not self.interval[0] < self.interval[1]:
            raise ValueError(f"An interval ends after it begins, unlike {self.interval}.")
        if any(x is not None and not 0 <= x < math.inf for x in self.identities):
            raise ValueError(f"Identities are finite and not negative, unlike some of {self.identities}.")


UNSTATED = Numerics()
"""Nothing is stated."""
