"""Monoids of Reduce and Scan: an identity and an associative combination, as data over scalar ops.

The ``steps`` are a straight-line program on values 0..n-1 (the left state) and n..2n-1 (the right one). Each step
appends one value; ``outputs`` are the values of the combined state. A target without a native form of a monoid renders
these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from keel.loops.scalar_ops import Domain

Literal = bool | int | float


@dataclass(frozen=True, slots=True)
class Monoid:
    """``identity(dtypes)`` returns the literals of the empty fold; ``steps`` are (scalar op, argument numbers).

    ``domains`` gives the dtypes that each part of the state may have, as ``scalar_ops.Domain`` does.
    """

    name: str
    arity: int
    identity: Callable[[tuple[torch.dtype, ...]], tuple[Literal, ...]]
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[int, ...]
    domains: tuple[Domain, ...]
    doc: str


def lowest(dtype: torch.dtype) -> Literal:
    """The least value of the dtype: -inf, the least integer, or False."""
    if dtype == torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Literal:
    """The greatest value of the dtype: inf, the greatest integer, or True."""
    if dtype == torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


def _zero(dtypes: tuple[torch.dtype, ...]) -> tuple[Literal, ...]:
    return tuple(False if d == torch.bool else 0.0 if d.is_floating_point else 0 for d in dtypes)


def _one(dtypes: tuple[torch.dtype, ...]) -> tuple[Literal, ...]:
    return tuple(True if d == torch.bool else 1.0 if d.is_floating_point else 1 for d in dtypes)


def _simple(
    name: str, op: str, domain: Domain, identity: Callable[[tuple[torch.dtype, ...]], tuple[Literal, ...]], doc: str
) -> Monoid:
    return Monoid(name, 1, identity, ((op, (0, 1)),), (2,), (domain,), doc)


def _arg(name: str, better: str, start: Callable[[torch.dtype], Literal], doc: str) -> Monoid:
    """The state is (value, position). NaN wins over numbers, and the lower position wins ties. The empty fold has the
    greatest position.
    """
    steps: tuple[tuple[str, tuple[int, ...]], ...] = (
        (better, (2, 0)),  # 4  right is better
        ("eq", (2, 0)),  # 5
        ("ne", (0, 0)),  # 6  left is NaN
        ("ne", (2, 2)),  # 7  right is NaN
        ("and", (6, 7)),  # 8
        ("or", (5, 8)),  # 9  a tie
        ("lt", (3, 1)),  # 10 right stands first
        ("and", (9, 10)),  # 11
        ("not", (6,)),  # 12
        ("and", (7, 12)),  # 13 only right is NaN
        ("or", (4, 13)),  # 14
        ("or", (14, 11)),  # 15 right wins
        ("where", (15, 2, 0)),  # 16
        ("where", (15, 3, 1)),  # 17
    )
    return Monoid(
        name, 2, lambda dtypes: (start(dtypes[0]), torch.iinfo(dtypes[1]).max), steps, (16, 17), ("any", "int"), doc
    )


MONOIDS: Mapping[str, Monoid] = {
    m.name: m
    for m in (
        _simple("sum", "add", "number", _zero, "x0 + x1 + ..., in any order"),
        _simple("prod", "mul", "number", _one, "x0 * x1 * ..., in any order"),
        _simple("max", "maximum", "number", lambda ds: (lowest(ds[0]),), "the largest; NaN if any is NaN"),
        _simple("min", "minimum", "number", lambda ds: (highest(ds[0]),), "the smallest; NaN if any is NaN"),
        _simple("any", "or", "bool", lambda ds: (False,), "whether any is true"),
        _simple("all", "and", "bool", lambda ds: (True,), "whether all are true"),
        _simple("xor", "xor", "integral", _zero, "exclusive or of all"),
        _arg("argmax", "gt", lowest, "the largest and where it first stands; the first NaN if there is one"),
        _arg("argmin", "lt", highest, "the smallest and where it first stands; the first NaN if there is one"),
        # Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979.
        Monoid(
            "welford",
            3,
            _zero,
            (
                ("add", (2, 5)),  # 6  n
                ("sub", (3, 0)),  # 7  delta
                ("div", (5, 6)),  # 8  nb / n, NaN where both are empty
                ("sub", (2, 2)),  # 9  zero
                ("eq", (5, 9)),  # 10 the right state is empty
                ("mul", (7, 8)),  # 11
                ("where", (10, 9, 11)),  # 12 delta * nb / n
                ("add", (0, 12)),  # 13 mean
                ("mul", (7, 12)),  # 14
                ("mul", (14, 2)),  # 15 delta^2 * na * nb / n
                ("sub", (7, 7)),  # 16 zero, NaN where a mean is infinite
                ("add", (15, 16)),  # 17
                ("add", (1, 4)),  # 18
                ("add", (18, 17)),  # 19 m2
            ),
            (13, 19, 6),
            ("float", "float", "float"),
            "(mean, sum of squared deviations, count); NaN past an infinity",
        ),
    )
}
