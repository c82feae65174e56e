"""Covering arrays: few choices of levels in which every pair of levels that can go together occurs.

Greedy, one choice at a time, each begun with a pair that is still missing, as in D. M. Cohen et al., "The AETG System:
An Approach to Testing Based on Combinatorial Design", IEEE TSE 23(7), 1997; ties are broken by the seed, so that the
array is the same each time.
"""
from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product

from keel_conformance.cases.domain import Levels, Rule

Factors = Mapping[str, tuple[str, ...]]
Pair = tuple[str, str, str, str]
"""Two factors in order, with a level each: factor, level, factor, level."""
PATIENCE = 4000
"""Steps after which the search for a choice with a given pair gives up and holds the pair for impossible."""


def pairs_of(levels: Levels) -> set[Pair]:
    """All pairs in a choice."""
    return {(f, a, g, b) for (f, a), (g, b) in combinations(levels.items(), 2)}


def covering(factors: Factors, rules: Sequence[Rule] = (), *, seed: int = 0,
             given: Iterable[Levels] = ()) -> list[dict[str, str]]:
    """Choices that cover every pair of levels for which there is a choice that the rules allow, those that the
    ``given`` choices cover left out.
    """
    chance = random.Random(seed)
    names = list(factors)
    if len(names) == 1:
        seen = {levels[names[0]] for levels in given}
        return [{names[0]: level} for level in factors[names[0]] if level not in seen]
    search = _Search(factors, rules, chance)
    missing = dict.fromkeys(pair for f, g in combinations(names, 2)
                            for pair in ((f, a, g, b) for a, b in product(factors[f], factors[g]))
                            if search.allowed({f: pair[1], g: pair[3]}))
    for levels in given:
        for pair in pairs_of({n: levels[n] for n in names}):
            missing.pop(pair, None)
    found = list[dict[str, str]]()
    while missing:
        f, a, g, b = next(iter(missing))
        levels = search.complete({f: a, g: b}, missing)
        if levels is None:
            del missing[f, a, g, b]
            continue
        found.append(levels)
        for pair in pairs_of(levels):
            missing.pop(pair, None)
    return found


class _Search:
    """For a choice around a pair, by depth first; of each factor the level that covers most is tried first."""

    def __init__(self, factors: Factors, rules: Sequence[Rule], chance: random.Random):
        self.factors, self.chance = factors, chance
        self.place = {f: i for i, f in enumerate(factors)}
        self.rules: dict[str, list[Rule]] = {f: [r for r in rules if f in r.factors] for f in factors}

    def allowed(self, levels: Levels, new: str | None = None) -> bool:
        rules = self.rules[new] if new else {id(r): r for f in levels for r in self.rules[f]}.values()
        return all(r.holds(*(levels[f] for f in r.factors)) for r in rules if all(f in levels for f in r.factors))

    def complete(self, levels: dict[str, str], missing: Mapping[Pair, None]) -> dict[str, str] | None:
        rest = [f for f in self.factors if f not in levels]
        self.chance.shuffle(rest)
        self.steps = 0
        found = self._extend(dict(levels), rest, missing)
        return {f: found[f] for f in self.factors} if found else None

    def _extend(self, levels: dict[str, str], rest: list[str], missing: Mapping[Pair, None]) -> dict[str, str] | None:
        if not rest:
            return levels
        self.steps += 1
        if self.steps > PATIENCE:
            return None
        factor, at = rest[0], self.place[rest[0]]
        ranked = []
        for level in self.factors[factor]:
            if self.allowed({**levels, factor: level}, factor):
                gain = sum(((factor, level, f, a) if at < self.place[f] else (f, a, factor, level)) in missing
                           for f, a in levels.items())
                ranked.append((-gain, self.chance.random(), level))
        for _, _, level in sorted(ranked):
            found = self._extend({**levels, factor: level}, rest[1:], missing)
            if found is not None:
                return found
        return None
