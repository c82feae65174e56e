"""Choices of which no values tell anything: the sum of one element is that element, and no integer is infinite.

A choice is tried on plain arguments of its kind of dtype and size. Where nothing computed has the results all the same,
it takes few of the places of an operator's cases; others are drawn instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

from . import trivial
from .covering_array import covering, extend
from .domain import DTYPES, Domain, Levels
from .inputs import TURNS, trivial_outcomes_of
from .smoke_tier import SIZES
from .values import SeededValues

KEEP, ENOUGH = 3, 60
"""So many of them stay for each thing that may pass for their results, of sizes and attributes of their own; all do,
where fewer than that many others are left.
"""
EMPTIES = 8
"""One choice of so many may be without results: how much is in them is little, whatever dtype and layout they have."""
NOTHING = "of nothing"
"""The arguments have no elements, and the results have: what a fold begins with, which no values tell."""
ROUNDS = 12
TRIED = (
    (0, "random", 0),
    (1, "random", 0),
    (1, "specials", 0),
    *((1, "specials", turn) for turn in range(1, TURNS + 1)),
)
"""Calls, the values of each, and how often these are drawn again; so often where there are few elements."""
SOME = ("257", "129")
"""Sizes that stand for others."""
PLAIN: Mapping[str, str] = {"layout": "contiguous", "which": "all", "partner": "alike", "place": "last"}
"""Levels with which a choice is tried, where the rules allow them."""


def drop_trivial(
    domain: Domain, chosen: Sequence[Levels], *, seed: int = 0, least: int = 0, stay: int = KEEP, plenty: int = ENOUGH
) -> list[Levels]:
    """The choices without those of which nothing tells but ``stay`` of each kind, one at least of results of nothing,
    and others for them up to ``least``, then those few, and some without results. All, where not ``plenty`` tell.
    """
    if not trivial.is_deterministic(domain.op):  # of these one result says as little as a thousand
        return list(chosen)
    passing = passer(domain)
    with _silence():
        asked = [(c, passing(c)) for c in chosen]
        kept, empty = [c for c, kind in asked if not kind], [c for c, kind in asked if trivial.EMPTY in kind]
        rest = [(c, kind) for c, kind in asked if kind and trivial.EMPTY not in kind]
        some = _spaced(empty, max(1, len(chosen) // EMPTIES))
        if len(kept) < plenty or (not rest and len(some) == len(empty)):
            return list(chosen)
        few = [*some, *_different(rest, stay)]
        for k in range(ROUNDS if least else 0):  # pairs of levels that were in no other choice
            more = covering(domain.factors, domain.rules, seed=seed + 7919 * (k + 1), given=[*kept, *few])
            found = [c for c in more if not passing(c)]
            kept += found
            if not found:
                break
        short = min(least, len(chosen)) - len(kept) - len(few)
        if short > 0:
            given = [*kept, *(c for c, _ in rest)]
            kept += [
                c
                for c in extend(domain.factors, domain.rules, given, seed=seed + 7919, least=len(given) + 2 * short)
                if not passing(c)
            ][:short]
    return [*kept, *few]


def passer(domain: Domain) -> Callable[[Levels], frozenset[str]]:
    """Of a choice, what may pass for its results whatever its values are (see ``blank``), and whether they are of
    nothing: empty where values tell. Asked once of choices that are alike.
    """
    known = dict[tuple[str, ...], frozenset[str]]()

    def passing(levels: Levels) -> frozenset[str]:
        plain = _plain(domain, levels)
        key = tuple(plain.values())
        if key not in known:
            known[key] = _passing(domain, plain)
        return known[key]

    return passing


def _passing(domain: Domain, plain: Levels) -> frozenset[str]:
    left: frozenset[str] | None = None
    for call, values, turn in TRIED if any(_slight(v) for f, v in plain.items() if f in SIZES) else TRIED[:3]:
        found = trivial_outcomes_of(domain, _with(domain, plain, "values", values), call, turn)
        left = found - {trivial.EXTREME} if left is None else left & found
        if not left:
            return frozenset()
    made = domain.make(plain, DTYPES[plain["dtype"]], SeededValues(repr(plain), 0))
    given = made.tensors if made is not None else []
    return (left or frozenset()) | ({NOTHING} if given and not any(x.numel() for x in given) else frozenset())


def _plain(domain: Domain, levels: Levels) -> Levels:
    """The like choice that stands for all of its kind of dtype, its size and its attributes."""
    usual = {
        f: next((v for v in (*SOME, *domain.factors[f]) if v in domain.factors[f] and not _slight(v)), levels[f])
        for f in domain.factors
        if f in SIZES and f not in PLAIN and not _slight(levels[f])
    }
    wishes = {**PLAIN, **usual, "values": "random"}
    alike = next(d for d in domain.factors["dtype"] if _class(d) == _class(levels["dtype"]))
    return reduce(lambda found, wish: _with(domain, found, *wish), [*wishes.items(), ("dtype", alike)], levels)


def _slight(level: str) -> bool:
    """Whether sizes of one element, or of none, are in its name."""
    return any(int(n) < 2 for n in re.findall(r"\d+", level))


def _with(domain: Domain, levels: Levels, factor: str, level: str) -> Levels:
    if level not in domain.factors.get(factor, ()) or not domain.allows({**levels, factor: level}):
        return levels
    return {**levels, factor: level}


def _class(dtype: str) -> str:
    of = DTYPES[dtype]
    return "bool" if dtype == "b8" else "complex" if of.is_complex else "float" if of.is_floating_point else "whole"


def _different(rest: Iterable[tuple[Levels, frozenset[str]]], stay: int) -> list[Levels]:
    """``stay`` of each kind, of sizes and attributes that those before them have not."""
    kinds = dict[frozenset[str], list[Levels]]()
    for levels, kind in rest:
        kinds.setdefault(kind, []).append(levels)
    found: list[Levels] = []
    for kind, some in kinds.items():
        seen, mine = set[tuple[str, str]](), list[Levels]()
        for levels in some:
            new = {(f, v) for f, v in levels.items() if f not in PLAIN and f != "values"} - seen
            if len(mine) < max(stay, NOTHING in kind) and (new or not mine):
                mine.append(levels)
                seen |= new
        found += mine
    return found


def _spaced(all_: Sequence[Levels], most: int) -> list[Levels]:
    """At most ``most`` of them, evenly spaced from the first to the last."""
    count = min(most, len(all_))
    return [all_[k * len(all_) // count] for k in range(count)]


@contextmanager
def _silence() -> Iterator[None]:
    """PyTorch warns on the standard error of sizes that are tried here on purpose."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
