"""Few cases are of choices of which no values tell anything; others stand for them, and none of what tells is lost."""
from __future__ import annotations

import pytest

from keel_conformance.cases.domain import Domain
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.plan import cases_of, choices
from keel_conformance.cases.sift import KEPT, sifted, teller


def domain(name: str) -> Domain:
    found = domain_of(name)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "slight"), [
    ("sum", lambda levels: levels["extent"] in ("1", "0d")),
    ("floor", lambda levels: levels["dtype"][0] in "iu"),
    ("isinf", lambda levels: levels["dtype"][0] in "iu"),
    ("t_copy", lambda levels: False),
])
def test_what_no_value_tells_takes_few_places(name: str, slight: object) -> None:
    before = choices(domain(name), "standard", 0)
    after = sifted(domain(name), before, least=200)
    assert callable(slight) and len(after) >= min(200, len(before)) / 2
    telling = teller(domain(name))
    few = [levels for levels in after if slight(levels) and not telling(levels)]
    assert len(few) <= KEPT and bool(few) == any(map(slight, before))
    assert len({tuple(levels.items()) for levels in after}) == len(after)


def test_of_what_is_a_copy_all_cases_stay() -> None:
    before = choices(domain("alias"), "standard", 0)
    assert len(sifted(domain("alias"), before, least=200)) == len(before)


def test_what_tells_is_all_there_and_first() -> None:
    before = choices(domain("exp"), "standard", 0)
    assert sifted(domain("exp"), before, least=200)[:5] == before[:5]
    drawn = domain("bernoulli")
    assert sifted(drawn, choices(drawn, "standard", 0)) == choices(drawn, "standard", 0)


@pytest.mark.parametrize("name", ["sum", "floor", "repeat", "mm"])
@pytest.mark.parametrize("tier", ["smoke", "standard"])
def test_the_plan_is_the_same_each_time(name: str, tier: str) -> None:
    assert [c.id for c in cases_of(domain(name), tier, 1)] == [c.id for c in cases_of(domain(name), tier, 1)]
