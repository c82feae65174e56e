"""What counts as reduced, blamed and located."""

from __future__ import annotations

from typing import Any

import pytest

from keel_bench.debugging.debug_bars import MODELS, bars, jobs
from keel_bench.jobs import Job, Selection
from keel_conformance.workers.pool import Outcome

ROW: dict[str, Any] = {
    "planted": True,
    "stage": "plugin",
    "kind": "wrong",
    "operator": "aten.mul.Tensor",
    "reduced": True,
    "nodes": 1,
    "lines": 20,
    "seconds": 100.0,
    "blamed": "plugin",
    "with_defect": 1,
    "without_defect": 0,
    "named": "aten.mul.Tensor",
}


def held(**changed: Any) -> dict[str, bool | None]:
    outcome = Outcome({**ROW, **changed})
    return {bar.name: bar.holds for bar in bars({Job("debug", "bert", "cpp", along="33:0"): outcome})}


def test_a_good_case_holds_all_but_the_count() -> None:
    found = held()
    assert not found.pop("defects planted") and len(found) == 6 and all(found.values())


@pytest.mark.parametrize(
    ("changed", "short"),
    [
        ({"nodes": 11}, "reduced to 10 calls and 40 lines"),
        ({"lines": 41}, "reduced to 10 calls and 40 lines"),
        ({"seconds": 301.0}, "reduced in 5 minutes"),
        ({"blamed": "runtime"}, "stage named rightly"),
        ({"without_defect": 1}, "scripts with 1 on the defect, 0 without it"),
        ({"with_defect": 0}, "scripts with 1 on the defect, 0 without it"),
        ({"named": ""}, "keel compare names the operator"),
    ],
)
def test_each_bar_can_fall_short(changed: dict[str, Any], short: str) -> None:
    assert held()[short] and not held(**changed)[short]


def test_a_defect_that_nothing_reduced_counts() -> None:
    outcome = Outcome({"planted": True, "stage": "fusion", "kind": "raises", "operator": "", "reduced": False})
    outcome.row["seconds"] = 20.0
    found = {bar.name: bar.holds for bar in bars({Job("debug", "bert", "cpp", along="33:4"): outcome})}
    assert not found["reduced to 10 calls and 40 lines"] and not found["stage named rightly"]


def test_there_are_120_cases_of_the_chosen_models() -> None:
    todo = jobs(Selection((*MODELS, "resnet50"), ("inference", "training"), "cpp"))
    assert len(todo) == 120 and len({job.along for job in todo}) == 120
    assert {job.model for job in todo} <= {*MODELS} and {job.mode for job in todo} == {"inference", "training"}
    assert jobs(Selection(("resnet50",), ("inference",), "cpp")) == []
