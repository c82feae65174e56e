"""A covering array has every valid pair of levels, and no row that a rule bans."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from keel_conformance.cases.covering_array import covering
from keel_conformance.cases.domain import Levels, Rule

NAMES = ("a", "b", "c", "d")


@st.composite
def spaces(draw: st.DrawFn) -> tuple[dict[str, tuple[str, ...]], tuple[Rule, ...]]:
    factors = {n: tuple(f"{n}{i}" for i in range(draw(st.integers(1, 4)))) for n in NAMES[: draw(st.integers(1, 4))]}
    rules = []
    for _ in range(draw(st.integers(0, 3))):
        places = tuple(draw(st.permutations(list(factors)))[: draw(st.integers(1, min(3, len(factors))))])
        rows = list(product(*(factors[p] for p in places)))
        banned = frozenset(draw(st.lists(st.sampled_from(rows), max_size=len(rows) // 2)))
        rules.append(Rule(places, lambda *row, banned=banned: row not in banned))
    return factors, tuple(rules)


def pairs(levels: Levels) -> set[tuple[tuple[str, str], ...]]:
    return set(combinations(levels.items(), min(2, len(levels))))


def valid(factors: dict[str, tuple[str, ...]], rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    rows = [dict(zip(factors, row, strict=True)) for row in product(*factors.values())]
    return [r for r in rows if all(rule.holds(*(r[f] for f in rule.factors)) for rule in rules)]


@settings(deadline=None, max_examples=150)
@given(spaces(), st.integers(0, 5))
def test_every_pair_that_some_choice_has_is_covered_by_choices_that_the_rules_allow(
    space: tuple[dict[str, tuple[str, ...]], tuple[Rule, ...]], seed: int
) -> None:
    factors, rules = space
    allowed = valid(factors, rules)
    found = covering(factors, rules, seed=seed)
    assert all(row in allowed for row in found)
    assert set().union(*map(pairs, found)) == set().union(*map(pairs, allowed))


@settings(deadline=None, max_examples=40)
@given(spaces())
def test_what_is_given_need_not_be_covered_again(space: tuple[dict[str, tuple[str, ...]], tuple[Rule, ...]]) -> None:
    factors, rules = space
    given_rows = valid(factors, rules)[:3]
    found = covering(factors, rules, earlier=given_rows)
    assert set().union(*map(pairs, [*found, *given_rows])) == set().union(*map(pairs, valid(factors, rules)))


def test_the_same_seed_gives_the_same_array_and_another_one_another() -> None:
    factors = {n: tuple(f"{n}{i}" for i in range(6)) for n in NAMES}
    assert covering(factors, seed=1) == covering(factors, seed=1) != covering(factors, seed=2)
    assert len(covering(factors)) <= 60


def test_it_can_be_cut_short() -> None:
    assert len(covering(dict.fromkeys(NAMES, ("0", "1", "2")), most=2)) == 2
