"""What a campaign concludes from verdicts."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from keel_conformance.cases.case import Case
from keel_conformance.results.verdict import Verdict
from keel_conformance.workers.command_run import Interruption
from keel_selftest import campaign
from keel_selftest.campaign import EAGER, Campaign
from keel_selftest.discriminating import has_decided_values
from keel_selftest.registry import MUTANTS
from keel_selftest.tasks import Task, Verdicts

CASES = tuple(
    Case(op, "pointwise", "op", "core", f"aten.{op}.Tensor", "f32", (("n", str(n)),))
    for op in ("add", "sub")
    for n in range(4)
)


@pytest.fixture
def sitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """Eager PyTorch passes all cases but one; a mutant fails those of its operator but one."""

    def verdicts(task: Task) -> Verdicts:
        wrong = {c.id for c in CASES[1:4]} if task.subject != EAGER else {CASES[7].id}
        return {c.id: Verdict(c.id, "fail" if c.id in wrong else "pass") for c in task.cases}

    def tried(tasks: Sequence[Task], **how: object) -> dict[str, Verdicts]:
        return {task.name: verdicts(task) for task in tasks}

    monkeypatch.setattr(campaign, "run_tasks", tried)
    found = Campaign(Console(quiet=True), "smoke", "core", 1, tmp_path, False, Interruption())
    found.plans["smoke", 0] = found.plans["standard", 0] = CASES
    return found


def test_kills_are_of_cases_that_eager_passes(sitting: Campaign) -> None:
    bars = {b.name: b for b in sitting.bars(["mutants"], [0], ["add-without-alpha", "sub-swapped"])}
    rows = {r["mutant"]: r for r in sitting.rows["mutants"]}
    assert (rows["add-without-alpha"]["tried"], rows["add-without-alpha"]["kills"]) == (4, 3)
    assert (rows["sub-swapped"]["tried"], rows["sub-swapped"]["kills"]) == (4, 0)
    assert bars["mutants killed"].value == "50.0 %" and bars["mutants killed"].holds is False


def test_a_mutant_is_tried_until_enough_cases_kill_it(sitting: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "WAVE", 1)
    asked: list[tuple[str, int]] = []
    plainly = campaign.run_tasks

    def tried(tasks: Sequence[Task], **how: object) -> dict[str, Verdicts]:
        asked.extend((task.subject, len(task.cases)) for task in tasks)
        return plainly(tasks, **how)

    monkeypatch.setattr(campaign, "run_tasks", tried)
    more = (Case("add", "pointwise", "op", "core", "aten.add.Tensor", "f32", (("n", str(n)),)) for n in range(4, 90))
    sitting.plans["smoke", 0] = (*CASES[:4], *more)
    sitting.bars(["mutants"], [0], ["add-without-alpha"])
    (row,) = sitting.rows["mutants"]
    waves = [n for subject, n in asked if subject != EAGER]
    assert waves == [1, 2, 4, 8, 16, 32, 27][: len(waves)]
    assert row["kills"] == 3 and row["tried"] == sum(waves)
    assert all(subject != EAGER or n <= 3 for subject, n in asked)


def test_eager_that_fails_is_a_false_alarm(sitting: Campaign) -> None:
    bars = {b.name: b for b in sitting.bars(["benign"], [0], list(MUTANTS))}
    assert bars["cases that eager PyTorch fails"].value == 1
    assert {row["case"] for row in sitting.rows["false alarms"]} <= {c.id for c in CASES[1:4]}
    assert bars[f"false alarms on {len(campaign.BENIGN)} benign variants"].holds is False


def test_repeats_that_agree_hold(sitting: Campaign) -> None:
    (bar,) = sitting.bars(["repeats"], [0], [])
    assert bar.value == "10 of 10" and bar.holds


def test_an_interrupted_sitting_falls_short(sitting: Campaign) -> None:
    sitting.interruption.by = signal.SIGINT
    (bar,) = sitting.bars(["mutants", "repeats"], [0], ["sub-swapped"])
    assert bar.holds is False and "SIGINT" in bar.note


def test_what_an_interruption_cut_off_is_not_judged(sitting: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plainly = list[str](), campaign.run_tasks

    def tried(tasks: Sequence[Task], **how: object) -> dict[str, Verdicts]:
        asked.extend(task.subject for task in tasks)
        sitting.interruption.by = signal.SIGINT
        return plainly(tasks, **how)

    monkeypatch.setattr(campaign, "run_tasks", tried)
    sitting.bars(["mutants"], [0], ["add-without-alpha"])
    assert EAGER not in asked and sitting.rows["mutants"] == []


def test_every_operator_is_tried_before_any_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "WAVE", 2)
    first, second, third = campaign.waves(CASES)
    assert {c.op for c in first} == {"add", "sub"} and len(second) == 4 and len(third) == 2
    assert {*first, *second, *third} == {*CASES}


def test_cases_of_operators_are_counted(sitting: Campaign) -> None:
    assert sitting.bars(["plan"], [0], []) == []
    sitting.tier = "standard"
    middle, least = sitting.bars(["plan"], [0], [])
    assert (middle.value, middle.holds, least.value, least.holds) == ("4", False, 4, False) and "add 4" in least.note


def test_one_draw_bears_no_value() -> None:
    drawn = {
        c.levels["shape"]: has_decided_values(c)
        for c in campaign.plan(ops=("bernoulli",), profile="strict")
        if c.kind == "op"
    }
    assert drawn["70001"] and not drawn["0d"] and not drawn["1"]


def test_only_of_what_a_control_passes_are_more_cases_run(sitting: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plainly = set[str](), campaign.run_tasks

    def tried(tasks: Sequence[Task], **how: object) -> dict[str, Verdicts]:
        asked.update(c.id for task in tasks if task.subject == EAGER for c in task.cases)
        return plainly(tasks, **how)

    monkeypatch.setattr(campaign, "run_tasks", tried)
    monkeypatch.setattr(campaign, "has_decided_values", lambda case: True)
    monkeypatch.setattr(campaign, "is_expected_pass", lambda control, case: False)
    monkeypatch.setitem(campaign.EACH, "smoke", 2)
    monkeypatch.setattr(campaign, "is_right_by_chance", lambda control, case: False)
    *_, vacuous = sitting.bars(["controls"], [0], [])
    drawn = sorted(CASES[:4], key=lambda c: c.digest)[:2]
    assert asked == {c.id for c in (*drawn, *CASES[4:])}
    assert vacuous.value == 1 and vacuous.note.startswith("sub")


def test_controls_are_tried_on_the_operators_that_are_asked_for(tmp_path: Path) -> None:
    found = Campaign(Console(quiet=True), "smoke", "core", 1, tmp_path, False, Interruption(), ("exp",))
    assert {c.op for c in found.plan(0)} == {"exp"}
