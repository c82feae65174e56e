"""Drawing a plan by several processes."""

from __future__ import annotations

import pytest

from keel import KeelError
from keel_conformance.cases.plan import cases_of_members, plan
from keel_conformance.harness import parallel_plan

FEW = ("add", "exp", "gather", "sum", "zeros")


def test_processes_draw_the_same_cases_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_plan, "FEW", 1)
    assert plan(ops=FEW, tier="smoke", draw=parallel_plan.parallel_drawer(2)) == plan(ops=FEW, tier="smoke")


def test_few_members_are_drawn_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_plan, "run_all", None)
    assert list(parallel_plan.parallel_drawer(8)(["exp"], "smoke", 0)) == list(cases_of_members(["exp"], "smoke", 0))


def test_what_fails_there_says_so_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_plan, "FEW", 1)
    with pytest.raises((KeelError, KeyError)):
        list(parallel_plan.parallel_drawer(2)(["exp", "no-such-member"], "smoke", 0))
