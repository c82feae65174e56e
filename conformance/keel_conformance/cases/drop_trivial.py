"""Limits the number of trivial choices: those whose right results a backend that computes nothing has for any values.

The sum of one element is that element, for example, and no integer is infinite. A choice is tried on plain arguments of
its kind of dtype and of its size. If a trivial result (zeros, the argument, ...) passes every time, only few such
choices become cases of the operator, and others are drawn instead.
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
"""``KEEP`` trivial choices stay for each kind of trivial result, with different sizes and attributes. All stay if fewer
than ``ENOUGH`` other choices are left.
"""
EMPTIES = 8
"""At most one choice of ``EMPTIES`` may have empty results. Empty results test little, whatever their dtype and layout.
"""
NOTHING = "of nothing"
"""The arguments are empty and the results are not: they are the identity of a reduction, whatever the values."""
ROUNDS = 12
TRIALS = (
    (0, "random", 0),
    (1, "random", 0),
    (1, "specials", 0),
    *((1, "specials", turn) for turn in range(1, TURNS + 1)),
)
"""Trials of a choice: the number of the call, the class of its values, and how often they are redrawn. Only choices
with few elements need the redrawn ones.
"""
SOME = ("257", "129")
"""Sizes that stand for others."""
PLAIN: Mapping[str, str] = {"layout": "contiguous", "which": "all", "partner": "alike", "place": "last"}
"""Levels with which a choice is tried, where the rules allow them."""


def drop_trivial(
    domain: Domain, chosen: Sequence[Levels], *, seed: int = 0, least: int = 0, stay: int = KEEP, plenty: int = ENOUGH
) -> list[Levels]:
    """Returns the choices with few trivial ones: ``stay`` of each kind, some with empty results, and others in their
    place until there are ``least``. Returns all choices if fewer than ``plenty`` of them are not trivial.
    """
    if not trivial.is_deterministic(domain.op):  # any result of a random member may be right
        return list(chosen)
    passing = passer(domain)
    with _silence():
        outcomes = [(c, passing(c)) for c in chosen]
        retained, empty = [c for c, kind in outcomes if not kind], [c for c, kind in outcomes if trivial.EMPTY in kind]
        rest = [(c, kind) for c, kind in outcomes if kind and trivial.EMPTY not in kind]
        some = _spaced(empty, max(1, len(chosen) // EMPTIES))
        if len(retained) < plenty or (not rest and len(some) == len(empty)):
            return list(chosen)
        few = [*some, *_different(rest, stay)]
        for k in range(ROUNDS if least else 0):  # pairs of levels that were in no other choice
            more = covering(domain.factors, domain.rules, seed=seed + 7919 * (k + 1), earlier=[*retained, *few])
            nontrivial = [c for c in more if not passing(c)]
            retained += nontrivial
            if not nontrivial:
                break
        short = min(least, len(chosen)) - len(retained) - len(few)
        if short > 0:
            earlier = [*retained, *(c for c, _ in rest)]
            retained += [
                c
                for c in extend(domain.factors, domain.rules, earlier, seed=seed + 7919, least=len(earlier) + 2 * short)
                if not passing(c)
            ][:short]
    return [*retained, *few]


def passer(domain: Domain) -> Callable[[Levels], frozenset[str]]:
    """Returns a function from a choice to the trivial results that pass for any values (see ``trivial``), and
    ``NOTHING`` if the arguments are empty. The set is empty for a choice that tests something. Choices that differ only
    in ways that do not matter share one answer.
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
    for call, values, turn in TRIALS if any(_slight(v) for f, v in plain.items() if f in SIZES) else TRIALS[:3]:
        outcomes = trivial_outcomes_of(domain, _with(domain, plain, "values", values), call, turn)
        left = outcomes - {trivial.EXTREME} if left is None else left & outcomes
        if not left:
            return frozenset()
    made = domain.make(plain, DTYPES[plain["dtype"]], SeededValues(repr(plain), 0))
    tensors = made.tensors if made is not None else []
    return (left or frozenset()) | ({NOTHING} if tensors and not any(x.numel() for x in tensors) else frozenset())


def _plain(domain: Domain, levels: Levels) -> Levels:
    """The like choice that stands for all of its kind of dtype, its size and its attributes."""
    usual = {
        f: next((v for v in (*SOME, *domain.factors[f]) if v in domain.factors[f] and not _slight(v)), levels[f])
        for f in domain.factors
        if f in SIZES and f not in PLAIN and not _slight(levels[f])
    }
    wishes = {**PLAIN, **usual, "values": "random"}
    alike = next(d for d in domain.factors["dtype"] if _class(d) == _class(levels["dtype"]))
    return reduce(lambda chosen, wish: _with(domain, chosen, *wish), [*wishes.items(), ("dtype", alike)], levels)


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
    """``stay`` choices of each kind, with sizes and attributes that the earlier ones lack."""
    kinds = dict[frozenset[str], list[Levels]]()
    for levels, kind in rest:
        kinds.setdefault(kind, []).append(levels)
    results: list[Levels] = []
    for kind, some in kinds.items():
        visited, selected = set[tuple[str, str]](), list[Levels]()
        for levels in some:
            new = {(f, v) for f, v in levels.items() if f not in PLAIN and f != "values"} - visited
            if len(selected) < max(stay, NOTHING in kind) and (new or not selected):
                selected.append(levels)
                visited |= new
        results += selected
    return results


def _spaced(all_: Sequence[Levels], most: int) -> list[Levels]:
    """At most ``most`` of them, evenly spaced from the first to the last."""
    count = min(most, len(all_))
    return [all_[k * len(all_) // count] for k in range(count)]


@contextmanager
def _silence() -> Iterator[None]:
    """PyTorch warns on the standard error of sizes that are tried here on purpose."""
    retained, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(retained, 2)
        os.close(retained)
        os.close(nowhere)
