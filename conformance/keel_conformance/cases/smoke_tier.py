"""The few choices of a domain that tell most: each level of each attribute where there is room, and of dtypes, layouts,
sizes and values those at which backends differ, many at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod

from .covering_array import best
from .domain import Domain, Levels

LEAST, MOST = 4, 6
"""The least and the most cases of a member. Between these, a member has as many cases as its richest attribute has
levels, and one more if it runs along a dimension. All but one are those that its domain ranks first, if it names
enough. The cases that a domain adds are not counted.
"""
USED = 0.15
"""Once a level is used, its weight is multiplied by ``USED``, and the weights of similar levels by ``LIKE``."""
LIKE = 0.6
AGAIN: Mapping[str, float] = {"f32": 0.6, "random": 0.6, "contiguous": 0.4}
"""Levels that go with any attribute well, and so are worth it again."""
MANY = 17
"""Cases of a member with very many kinds of calls."""
ATTRIBUTE = 3.0
KNOWN: Mapping[str, Mapping[str, float]] = {
    "dtype": {
        "f32": 2.0,
        "bf16": 1.6,
        "f16": 1.5,
        "i64": 1.6,
        "i32": 1.4,
        "b8": 1.2,
        "f64": 0.9,
        "c64": 1.0,
        "u8": 0.8,
        "i8": 0.6,
        "i16": 0.6,
    },
    "values": {
        "random": 2.0,
        "specials": 1.8,
        "nonfinite": 1.8,
        "all": 1.8,
        "exact": 1.5,
        "duplicates": 1.2,
        "wide": 1.2,
        "shifted": 1.1,
        "ties": 1.0,
        "cancel": 0.7,
        "tiny": 0.6,
        "huge": 0.6,
        "every": 0.1,
    },
    "layout": {
        "transposed": 1.8,
        "gapped": 1.5,
        "offset": 1.4,
        "expanded": 1.3,
        "channels_last": 1.2,
        "expanded_last": 1.1,
        "contiguous": 1.0,
        "reversed": 0.9,
        "rows_apart": 0.9,
        "odd_ones": 0.6,
    },
}
"""The weight of each level of the factors that all domains have. Levels of other factors weigh ``OTHER``."""
OTHER = 0.4
PAIR_WEIGHTS: Mapping[tuple[str, str], float] = {
    ("i64", "wide"): 1.2,
    ("i32", "wide"): 1.2,
    ("b8", "random"): 1.0,
    ("f16", "huge"): 1.0,
    ("bf16", "random"): 1.0,
    ("u8", "wide"): 0.8,
    ("b8", "257"): 1.5,
    ("b8", "1025"): 1.5,
    ("b8", "0"): -1.0,
    ("two", "rank4"): 0.6,
    ("two_keep", "rank4"): 0.6,
}
"""What a class of values, or a size, is worth more where it stands in a dtype: what wraps around, overflows, counts."""
SAME, SHAPED = ("expanded", "expanded_last"), ("shape", "extent")
"""Where there is one dimension, or one that counts, all its elements are the same in these layouts."""
ALIKE = (
    ("bf16", "f16"),
    ("u8", "i8", "i16"),
    ("c64", "c128"),
    ("specials", "nonfinite", "all"),
    ("transposed", "reversed", "channels_last"),
    ("expanded", "expanded_last"),
    ("gapped", "rows_apart", "offset"),
)
SIZES = frozenset(
    {"shape", "extent", "size", "plane", "place", "k", "n", "batch", "partner", "which", "rows", "outs", "taken"}
)
"""Factors that say how large tensors are, and how they stand to each other: no attributes."""
NAMED = frozenset({"shape", "extent", "place", "partner", "which", "taken"})
TELLING: Mapping[str, float] = {
    "70001": 1.6,
    "300x257": 1.5,
    "17x65": 1.4,
    "2x3x4x5": 1.4,
    "129x9": 1.3,
    "2x17x8": 1.3,
    "1025": 1.3,
    "257": 1.6,
    "16": 1.1,
    "129": 1.1,
    "0": 1.25,
    "0d": 0.9,
    "row": 1.2,
    "column": 1.3,
    "outer": 1.1,
    "middle": 1.3,
    "first": 1.2,
    "rank4": 1.3,
    "alone": 0.7,
    "rest": 1.2,
    "equal": 1.5,
    "different": 1.4,
    "many": 1.3,
    "one": 0.7,
    "none": 0.6,
    "17x17": 1.5,
}
"""Levels of those that are worth more, or less, than others."""


def select_smoke(domain: Domain, seed: int) -> list[Levels]:
    """Those of tier smoke."""
    attributes = [f for f in domain.factors if f not in KNOWN and f not in SIZES]
    least = LEAST + ("extent" in domain.factors)
    most = min(MOST, max([least, *(len(domain.factors[f]) for f in attributes)]))
    most = max(most, min(MANY, max(len(domain.factors.get("form", ())) // 2, len(domain.priority) + 1)))
    results = list(domain.priority[: most - 1])
    left = {
        (f, level): weight(f, level) - _dull(domain, level) for f, levels in domain.factors.items() for level in levels
    }
    met = set[tuple[str, str]]()

    def worth(factor: str, level: str, chosen: Levels) -> float:
        pair_weight = sum(
            PAIR_WEIGHTS.get((other, level), 0.0) for other in chosen.values() if (other, level) not in met
        )
        flat = level in SAME and any(f in SIZES and "x" not in v for f, v in chosen.items() if f in SHAPED)
        return left[factor, level] + pair_weight - (2.0 if flat else 0.0)

    for levels in results:
        _use(left, domain, levels)
    sizes = [f for f in domain.factors if f in SIZES]
    while len(results) < most:
        first = sorted(attributes, key=lambda f: -max(left[f, level] for level in domain.factors[f]))
        order = [f for f in (*first, "dtype", "values", *sizes, "layout") if f in domain.factors]
        choice = best(domain.factors, domain.rules, order, worth)
        if choice is None:
            break
        _use(left, domain, choice)
        if choice in results:
            most -= 1
        else:
            results.append(choice)
            met |= {(one, other) for one in choice.values() for other in choice.values()}
    return [*results, *(levels for levels in domain.added if levels not in results)]


def weight(factor: str, level: str) -> float:
    if factor in KNOWN:
        return KNOWN[factor].get(level, OTHER)
    if factor not in SIZES:
        return ATTRIBUTE
    return TELLING.get(level, _size(level)) if factor in NAMED else _size(level)


def _dull(domain: Domain, level: str) -> float:
    """A penalty for equal elements in calls whose sizes are fixed. Most of these calls have few elements, and mistakes
    in their order go unnoticed if all are equal.
    """
    return 0.7 if "sample" in domain.factors and level in SAME else 0.0


def _size(level: str) -> float:
    """Sizes of one element, or of none, say little of anything else."""
    sizes = [int(n) for n in re.findall(r"\d+", level)]
    return 0.5 if sizes and prod(sizes) == 1 else 0.7 if 0 in sizes else 1.0


def _use(left: dict[tuple[str, str], float], domain: Domain, levels: Levels) -> None:
    """Takes off what a choice has shown."""
    for factor, level in levels.items():
        left[factor, level] *= AGAIN.get(level, USED)
        for other in _like(factor, level):
            if (factor, other) in left:
                left[factor, other] *= LIKE
        facets = domain.facets.get(level, frozenset())
        for other in domain.factors[factor] if facets else ():  # what says the same of an argument says less again
            if other != level and (shared := facets & domain.facets.get(other, frozenset())):
                left[factor, other] *= 1 - 0.5 * len(shared) / len(domain.facets[other])


def _like(factor: str, level: str) -> Iterable[str]:
    return [other for group in ALIKE if factor in KNOWN and level in group for other in group if other != level]
