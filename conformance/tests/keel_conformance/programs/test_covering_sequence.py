"""A sequence has every combination that can stand in a row, and no action without what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel_conformance.programs.covering_sequence import Facts, covering_sequence, facts_after, possible

NO_FACTS = Facts()


@dataclass(frozen=True)
class Step:
    needs: Facts = NO_FACTS
    gives: Facts = NO_FACTS
    ends: Facts = NO_FACTS


OPEN, SHUT = Step(gives=Facts({"open"})), Step(needs=Facts({"open"}), ends=Facts({"open"}))
STEPS = {"open": OPEN, "shut": SHUT, "walk": Step(), "enter": Step(needs=Facts({"open"}))}


def runs(names: tuple[str, ...], facts: Facts) -> bool:
    for name in names:
        if not STEPS[name].needs <= facts:
            return False
        facts = facts_after(facts, STEPS[name])
    return True


@pytest.mark.parametrize("strength", [2, 3])
@pytest.mark.parametrize("only", [Facts(), Facts({"enter"})])
def test_every_combination_that_can_be_is_there(strength: int, only: Facts) -> None:
    names = covering_sequence(STEPS, strength, 0, only)
    assert possible(names, STEPS) == names
    present = set(zip(*(names[k:] for k in range(strength)), strict=False))
    wanted = {
        combination
        for combination in product(STEPS, repeat=strength)
        if any(runs(combination, facts) for facts in (Facts(), Facts({"open"})))
        and not (only and only.isdisjoint(combination))
    }
    assert present >= wanted and ("shut", "enter") not in set(pairwise(names))


def test_a_seed_gives_an_order() -> None:
    orders = [covering_sequence(STEPS, 2, seed) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdefg"), st.tuples(*[st.frozensets(st.sampled_from("xyz"))] * 3), min_size=1))
def test_whatever_the_facts_no_action_lacks_what_it_needs(drawn: dict[str, tuple[Facts, Facts, Facts]]) -> None:
    steps = {name: Step(*facts) for name, facts in drawn.items()}
    names = covering_sequence(steps, 2, 0)
    assert possible(names, steps) == names and len(names) <= 4 * len(steps) ** 2
    free = [name for name, one in steps.items() if not one.needs]
    assert {(a, b) for a in free for b in free} <= set(pairwise(names))
