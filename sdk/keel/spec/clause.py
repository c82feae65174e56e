"""A clause of an operator: a sentence that every implementation keeps, and what arguments must have for it to matter.

The sentence is for readers alone. What code needs to know of it stands beside it, as tags.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Flag, auto


class About(Flag):
    """What a clause is about.

    Up to ``PROMOTION`` the tags are of arguments: a call that is to witness the clause has arguments of each kind that
    is named. The others say what the clause promises.
    """

    NONFINITE = auto()
    """NaN, infinities, subnormal numbers, and results that overflow."""
    ZERO = auto()
    """Zeros, of either sign, and results of zero."""
    EDGE = auto()
    """Numbers at or beyond the edge of a function's domain: negative ones, a base of 1, an exponent of 0."""
    INTEGER_EDGE = auto()
    """An integer divided by 0, the least integer, and results that wrap around."""
    TIES = auto()
    """Equal elements, keys or indices."""
    HALFWAY = auto()
    """Numbers halfway between two that a result can have, so that the rule for ties decides."""
    HALF = auto()
    """Floats of 16 bits."""
    COMPLEX = auto()
    """Complex numbers."""
    INTEGRAL = auto()
    """Integers or bools."""
    INTEGER = auto()
    """Integers, bools not counted."""
    BOOL = auto()
    """Bools."""
    UINT8 = auto()
    """Unsigned integers of 8 bits."""
    EMPTY = auto()
    """A tensor without elements."""
    SCALAR = auto()
    """A tensor without dimensions."""
    BROADCAST = auto()
    """Tensors of different shapes."""
    PROMOTION = auto()
    """Arguments of different dtypes, numbers counted."""
    FLOAT32 = auto()
    """Sums, and what else a result is made of, are computed in float32 or better, whatever the dtype of the arguments.
    Without such a clause, a composite may round to 16 bits what it computes on the way.
    """
    BATCH = auto()
    """Leading dimensions are a batch, each element of which is treated alone."""
    OUTSIDE = auto()
    """An index outside the dimension is an error."""
    UNSPECIFIED = auto()
    """All that the clause says is what it leaves open, so no call can break it."""


NOTHING = About(0)
"""Nothing in particular: every call witnesses the clause."""


@dataclass(frozen=True)
class Clause:
    """A sentence, what it is ``about``, and the ``parameters`` that a call must be given (other than by their defaults)
    for the sentence to say anything of it.
    """

    text: str
    about: About = NOTHING
    parameters: tuple[str, ...] = ()


Stated = Iterable[Clause | str]
"""Clauses as a declaration has them: a string is a clause about nothing in particular."""


def clauses_of(stated: Stated) -> tuple[Clause, ...]:
    """The clauses of a declaration, each a ``Clause``."""
    return tuple(Clause(c) if isinstance(c, str) else c for c in stated)
