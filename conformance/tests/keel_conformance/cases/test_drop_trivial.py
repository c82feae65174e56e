"""Few cases are trivial choices; others take their place, and no choice that tests something is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from keel_conformance.cases.domain import Domain
from keel_conformance.cases.domains import declared_domain
from keel_conformance.cases.drop_trivial import EMPTIES, KEEP, NOTHING, drop_trivial, passer
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import cases_of, choices
from keel_conformance.cases.trivial import EMPTY
from keel_conformance.harness.backend_worker import overload


def domain(name: str) -> Domain:
    found = declared_domain(name)  # anchors are chosen for other reasons
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "slight"),
    [
        ("sum", lambda levels: levels["extent"] in ("1", "0d")),
        ("floor", lambda levels: levels["dtype"][0] in "iu"),
        ("isinf", lambda levels: levels["dtype"][0] in "iu"),
        ("t_copy", lambda levels: False),
    ],
)
def test_what_no_value_tells_takes_few_places(name: str, slight: object) -> None:
    before = choices(domain(name), "standard", 0)
    after = drop_trivial(domain(name), before, least=200)
    assert callable(slight) and len(after) >= min(200, len(before)) / 2
    passing = passer(domain(name))
    few = Counter(passing(levels) for levels in after if slight(levels) and passing(levels))
    assert all(count <= KEEP for kind, count in few.items() if EMPTY not in kind)
    assert bool(few) == any(map(slight, before))
    assert len({tuple(levels.items()) for levels in after}) == len(after)


@pytest.mark.parametrize("name", ["tril", "cdist"])
def test_few_cases_have_no_results(name: str) -> None:
    passing = passer(domain(name))
    found = [c for c in cases_of(domain(name), "standard", 0) if c.kind == "op"]
    empty = [c for c in found if EMPTY in passing({**c.levels, "dtype": c.dtype})]
    assert 0 < len(empty) <= len(found) / EMPTIES + 1


@pytest.mark.parametrize("name", ["reshape", "unsqueeze"])
def test_where_all_results_are_the_argument_it_is_no_reason_to_leave_them_out(name: str) -> None:
    passing = passer(domain(name))
    found = [c for c in cases_of(domain(name), "standard", 0) if c.kind == "op"]
    assert sum(EMPTY not in passing({**c.levels, "dtype": c.dtype}) for c in found) > len(found) / 2


@pytest.mark.parametrize("name", ["prod", "all", "sum"])
def test_folds_of_nothing_stay(name: str) -> None:
    passing = passer(domain(name))
    for tier, least in (("standard", 2), ("smoke", 0)):
        found = [
            c
            for c in cases_of(domain(name), tier, 0)
            if c.kind == "op" and NOTHING in passing({**c.levels, "dtype": c.dtype})
        ]
        assert len(found) >= least


def test_of_what_is_a_copy_all_cases_stay() -> None:
    before = choices(domain("alias"), "standard", 0)
    assert len(drop_trivial(domain("alias"), before, least=200)) == len(before)


def test_what_tells_is_all_there_and_first() -> None:
    before = choices(domain("exp"), "standard", 0)
    assert drop_trivial(domain("exp"), before, least=200)[:5] == before[:5]
    drawn = domain("bernoulli")
    assert drop_trivial(drawn, choices(drawn, "standard", 0)) == choices(drawn, "standard", 0)


@pytest.mark.parametrize("name", ["sum", "floor", "repeat", "mm"])
@pytest.mark.parametrize("tier", ["smoke", "standard"])
def test_the_plan_is_the_same_each_time(name: str, tier: str) -> None:
    assert [c.id for c in cases_of(domain(name), tier, 1)] == [c.id for c in cases_of(domain(name), tier, 1)]


def test_what_memory_held_decides_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "keel_conformance.cases.trivial.trivial_outcomes", lambda *asked: pytest.fail("eager PyTorch was asked")
    )
    assert list(cases_of(domain("empty"), "standard", 0))


def test_any_and_all_are_false_as_often_as_true() -> None:
    for name in ("any", "all"):
        found = [
            result
            for case in cases_of(domain(name), "standard", 0)
            if case.kind == "op"
            for call in (0, 1)
            for inputs in (draw_inputs(case, call),)
            for result in [overload(case.overload)(*inputs.args, **inputs.kwargs).bool()]
            if result.numel()
        ]
        assert all(sum(bool((x == what).any()) for x in found) > len(found) / 2 for what in (True, False))
