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

from keel_conformance.cases import blank
from keel_conformance.cases.arguments import TURNS, signs
from keel_conformance.cases.covering import covering, further
from keel_conformance.cases.domain import DTYPES, Domain, Levels
from keel_conformance.cases.smoke import SIZES

KEPT, PLENTY = 5, 60
"""So many of them stay, of sizes and attributes of their own; all do, where fewer than that many others are left."""
ROUNDS = 12
TRIED = ((0, "random", 0), (1, "random", 0), (1, "specials", 0),
         *((1, "specials", turn) for turn in range(1, TURNS + 1)))
"""Calls, the values of each, and how often these are drawn again; so often where there are few elements."""
SOME = ("257", "129")
"""Sizes that stand for others."""
PLAIN: Mapping[str, str] = {"layout": "contiguous", "which": "all", "partner": "alike", "place": "last"}
"""Levels with which a choice is tried, where the rules allow them."""


def sifted(domain: Domain, chosen: Sequence[Levels], *, seed: int = 0, least: int = 0, stay: int = KEPT,
           plenty: int = PLENTY) -> list[Levels]:
    """The choices without those of which nothing tells but ``stay`` of them, which come last, and others for them up to
    ``least``; all, where not ``plenty`` are left.
    """
    if "random" in domain.op.tags:                             # of these one draw says as little as a thousand
        return list(chosen)
    telling = teller(domain)
    with _silence():
        kept, rest = [c for c in chosen if telling(c)], [c for c in chosen if not telling(c)]
        if not rest or len(kept) < plenty:
            return [*kept, *rest]
        few = _different(rest)[:stay]
        for k in range(ROUNDS if least else 0):                # pairs of levels that were in no other choice
            more = covering(domain.factors, domain.rules, seed=seed + 7919 * (k + 1), given=[*kept, *few])
            found = [c for c in more if telling(c)]
            kept += found
            if not found:
                break
        short = min(least, len(chosen)) - len(kept) - len(few)
        if short > 0:
            given = [*kept, *rest]
            kept += [c for c in further(domain.factors, domain.rules, given, seed=seed + 7919,
                                        least=len(given) + 2 * short) if telling(c)][:short]
    return [*kept, *few]


def teller(domain: Domain) -> Callable[[Levels], bool]:
    """Of a choice, whether its values tell anything; asked once of choices that are alike."""
    known = dict[tuple[str, ...], bool]()

    def telling(levels: Levels) -> bool:
        plain = _plain(domain, levels)
        key = tuple(plain.values())
        if key not in known:
            known[key] = _tells(domain, plain)
        return known[key]
    return telling


def _tells(domain: Domain, plain: Levels) -> bool:
    left: frozenset[str] | None = None
    for call, values, turn in TRIED if any(_slight(v) for f, v in plain.items() if f in SIZES) else TRIED[:3]:
        found = signs(domain, _with(domain, plain, "values", values), call, turn)
        left = found - {blank.EXTREME} if left is None else left & found
        if not left:
            return True
    return False


def _plain(domain: Domain, levels: Levels) -> Levels:
    """The like choice that stands for all of its kind of dtype, its size and its attributes."""
    usual = {f: next((v for v in (*SOME, *domain.factors[f]) if v in domain.factors[f] and not _slight(v)), levels[f])
             for f in domain.factors if f in SIZES and f not in PLAIN and not _slight(levels[f])}
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


def _different(rest: Iterable[Levels]) -> list[Levels]:
    """A few, of sizes and attributes that those before them have not."""
    seen, found = set[tuple[str, str]](), list[Levels]()
    for levels in rest:
        new = {(f, v) for f, v in levels.items() if f not in PLAIN and f != "values"} - seen
        if len(found) < KEPT and (new or not found):
            found.append(levels)
            seen |= new
    return found


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
