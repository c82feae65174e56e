"""Covering arrays: few choices of levels in which every pair of levels that can go together occurs.

Greedy, one choice at a time, each begun with a pair that is still missing, as in D. M. Cohen et al., "The AETG System:
An Approach to Testing Based on Combinatorial Design", IEEE TSE 23(7), 1997; ties are broken by the seed, so that the
array is the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product

from .domain import Levels, Rule

Pair = tuple[int, int, int, int]
"""Two factors by number, in order, with a level each: factor, level, factor, level."""
Table = tuple[tuple[int, ...], frozenset[tuple[int, ...]]]
"""A rule by numbers: its factors, and which of their levels go together."""
PATIENCE = 4000
"""Steps after which the search for a choice with a given pair gives up and holds the pair for impossible."""


def covering(
    factors: Mapping[str, tuple[str, ...]],
    rules: Sequence[Rule] = (),
    *,
    seed: int = 0,
    earlier: Iterable[Levels] = (),
    most: int | None = None,
) -> list[dict[str, str]]:
    """Choices that cover every pair of levels for which there is a choice that the rules allow, those that the
    ``earlier`` choices cover left out; ``most`` ends it early.
    """
    names = list(factors)
    number = {f: {level: i for i, level in enumerate(levels)} for f, levels in factors.items()}
    earlier_rows = tuple(tuple(number[f][levels[f]] for f in names) for levels in earlier)
    counts, tables = tuple(len(factors[f]) for f in names), tuple(_table(factors, names, r) for r in rules)
    rows = _rows(counts, tables, seed, earlier_rows, most)
    return [{f: factors[f][level] for f, level in zip(names, row, strict=True)} for row in rows]


def extend(
    factors: Mapping[str, tuple[str, ...]], rules: Sequence[Rule], earlier: Sequence[Levels], *, seed: int, least: int
) -> list[dict[str, str]]:
    """Drawn choices that the rules allow, none of them given, so that there are ``least`` in all; fewer, where there
    are few to draw from.
    """
    names = list(factors)
    visited = {tuple(levels[f] for f in names) for levels in earlier}
    counts, tables = tuple(len(factors[f]) for f in names), tuple(_table(factors, names, r) for r in rules)
    draw, tries = _drawing(counts, tables, seed), 3 * max(0, least - len(visited))
    results = list[dict[str, str]]()
    for row in map(draw, range(tries)):
        if len(visited) >= least:
            break
        levels = {f: factors[f][level] for f, level in zip(names, row, strict=True)} if row is not None else {}
        if levels and tuple(levels.values()) not in visited:
            visited.add(tuple(levels.values()))
            results.append(levels)
    return results


@lru_cache(4096)
def _drawing(counts: tuple[int, ...], tables: tuple[Table, ...], seed: int) -> Callable[[int], tuple[int, ...] | None]:
    """By number, drawn choices; operators whose factors are alike share them."""
    search, rows, none = _Search(counts, tables, random.Random(seed)), list[tuple[int, ...] | None](), _Missing()

    def row(k: int) -> tuple[int, ...] | None:
        while len(rows) <= k:
            rows.append(search.complete((), none))
        return rows[k]

    return row


def best(
    factors: Mapping[str, tuple[str, ...]],
    rules: Sequence[Rule],
    order: Sequence[str],
    worth: Callable[[str, str, Levels], float],
) -> dict[str, str] | None:
    """A choice that the rules allow: factor by factor in that order the level that is worth most beside those chosen
    before it.
    """
    names = list(factors)
    search = _Search(
        tuple(len(factors[f]) for f in names), tuple(_table(factors, names, r) for r in rules), random.Random(0)
    )

    def rank(factor: int, chosen: Mapping[int, int]) -> list[int]:
        before = {names[f]: factors[names[f]][level] for f, level in chosen.items()}
        worths = [-worth(names[factor], level, before) for level in factors[names[factor]]]
        return sorted(range(len(worths)), key=worths.__getitem__)

    result = search.best({}, [names.index(f) for f in order], rank)
    return {f: factors[f][result[k]] for k, f in enumerate(names)} if result else None


def _table(factors: Mapping[str, tuple[str, ...]], names: list[str], rule: Rule) -> Table:
    return tuple(names.index(f) for f in rule.factors), _allowed(rule, tuple(factors[f] for f in rule.factors))


@lru_cache(256)
def _allowed(rule: Rule, levels: tuple[tuple[str, ...], ...]) -> frozenset[tuple[int, ...]]:
    """By number, which levels go together; a domain is searched several times over."""
    return frozenset(
        tuple(i for i, _ in chosen)
        for chosen in product(*map(enumerate, levels))
        if rule.holds(*(level for _, level in chosen))
    )


@lru_cache(4096)
def _rows(
    counts: tuple[int, ...],
    tables: tuple[Table, ...],
    seed: int,
    earlier: tuple[tuple[int, ...], ...],
    most: int | None,
) -> tuple[tuple[int, ...], ...]:
    """Choices by numbers; operators whose factors are alike share them."""
    search = _Search(counts, tables, random.Random(seed))
    if len(counts) == 1:
        left = [(level,) for level in range(counts[0]) if (level,) not in earlier and search.fits(0, level, {})]
        return tuple(left[:most])
    missing = _Missing(
        (f, a, g, b)
        for f, g in combinations(range(len(counts)), 2)
        for a, b in product(range(counts[f]), range(counts[g]))
        if search.fits(g, b, {f: a}) and search.fits(f, a, {g: b})
    )
    for row in earlier:
        missing.strike(row)
    results = list[tuple[int, ...]]()
    while missing.pairs and (most is None or len(results) < most):
        pair = next(iter(missing.pairs))
        choice = search.complete(pair, missing)
        if choice is None:
            missing.drop(pair)
            continue
        results.append(choice)
        missing.strike(choice)
    return tuple(results)


class _Missing:
    """Pairs of levels that no choice has yet, in order; also as bits: of a factor's level, which of another's."""

    def __init__(self, pairs: Iterable[Pair] = ()):
        self.pairs = dict.fromkeys(pairs)
        self.bits = dict[tuple[int, int, int], int]()
        for f, a, g, b in self.pairs:
            self.bits[f, a, g] = self.bits.get((f, a, g), 0) | 1 << b
            self.bits[g, b, f] = self.bits.get((g, b, f), 0) | 1 << a

    def drop(self, pair: Pair) -> None:
        f, a, g, b = pair
        del self.pairs[pair]
        self.bits[f, a, g] &= ~(1 << b)
        self.bits[g, b, f] &= ~(1 << a)

    def strike(self, row: tuple[int, ...]) -> None:
        for (f, a), (g, b) in combinations(enumerate(row), 2):
            if (f, a, g, b) in self.pairs:
                self.drop((f, a, g, b))


class _Search:
    """For a choice around a pair, by depth first; of each factor the level that covers most is tried first."""

    def __init__(self, counts: tuple[int, ...], tables: Sequence[Table], chance: random.Random):
        self.counts, self.chance, self.steps = counts, chance, 0
        self.tables = [[t for t in tables if f in t[0] and len(t[0]) != 2] for f in range(len(counts))]
        self.with_one = dict[tuple[int, int, int], int]()  # of a factor, the levels that go with one of another
        for (f, g), allowed in (t for t in tables if len(t[0]) == 2):
            for one, other, pairs in ((f, g, allowed), (g, f, [(b, a) for a, b in allowed])):
                masks = dict.fromkeys(range(counts[one]), 0)
                for a, b in pairs:
                    masks[a] |= 1 << b
                for a, mask in masks.items():
                    self.with_one[one, a, other] = self.with_one.get((one, a, other), -1) & mask

    def fits(self, factor: int, level: int, chosen: Mapping[int, int]) -> bool:
        """Whether every rule that is decided by a further level allows it."""
        return bool(self.mask(factor, chosen) >> level & 1) and self.holds(factor, level, chosen)

    def holds(self, factor: int, level: int, chosen: Mapping[int, int]) -> bool:
        """Whether those of other than two factors do."""
        for places, allowed in self.tables[factor]:
            row = tuple(level if f == factor else chosen.get(f, -1) for f in places)
            if -1 not in row and row not in allowed:
                return False
        return True

    def mask(self, factor: int, chosen: Mapping[int, int]) -> int:
        """The levels that rules of two factors allow, as bits."""
        result = -1
        for f, a in chosen.items():
            result &= self.with_one.get((f, a, factor), -1)
        return result

    def complete(self, pair: tuple[int, ...], missing: _Missing) -> tuple[int, ...] | None:
        """A choice with the pair (factor, level, factor, level), if there is one; with none, any choice."""
        assigned = dict(zip(pair[::2], pair[1::2], strict=True))
        rest = [h for h in range(len(self.counts)) if h not in assigned]
        self.chance.shuffle(rest)
        self.steps = 0
        result = self._extend(assigned, rest, missing.bits)
        return tuple(result[h] for h in range(len(self.counts))) if result else None

    def best(
        self,
        chosen: dict[int, int],
        rest: list[int],
        rank: Callable[[int, Mapping[int, int]], list[int]],
    ) -> dict[int, int] | None:
        """A choice of the first levels in rank that go together."""
        if not rest:
            return chosen
        self.steps += 1
        if self.steps > PATIENCE:
            return None
        for level in rank(rest[0], chosen):
            if self.fits(rest[0], level, chosen):
                result = self.best({**chosen, rest[0]: level}, rest[1:], rank)
                if result is not None:
                    return result
        return None

    def _extend(
        self,
        chosen: dict[int, int],
        rest: list[int],
        missing: Mapping[tuple[int, int, int], int],
    ) -> dict[int, int] | None:
        if not rest:
            return chosen
        self.steps += 1
        if self.steps > PATIENCE:
            return None
        factor, chance = rest[0], self.chance.random
        mask = self.mask(factor, chosen)
        gains = [bits for f, a in chosen.items() if (bits := missing.get((f, a, factor), 0))] if missing else ()
        ranked = [
            (-sum(bits >> level & 1 for bits in gains) if gains else 0, chance(), level)
            for level in range(self.counts[factor])
            if mask >> level & 1 and (not self.tables[factor] or self.holds(factor, level, chosen))
        ]
        for _, _, level in sorted(ranked):
            result = self._extend({**chosen, factor: level}, rest[1:], missing)
            if result is not None:
                return result
        return None
