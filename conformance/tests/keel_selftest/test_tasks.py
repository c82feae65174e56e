"""Several backends tried together, and gone on with."""

from __future__ import annotations

from pathlib import Path

from keel_conformance.cases.plan import plan
from keel_selftest.campaign import first_of_each, spread
from keel_selftest.registry import MUTANTS
from keel_selftest.tasks import Task, run_tasks


def test_each_backend_has_its_own_verdicts_and_is_not_tried_again(tmp_path: Path) -> None:
    cases = tuple(c for c in plan(tier="smoke", ops=["abs"]) if c.kind == "op")
    tasks = [Task("eager", "eager", cases), Task("wrong", MUTANTS["abs-of-minus-zero"].subject, cases, once=True)]
    found = run_tasks(tasks, out=tmp_path)
    assert {v.status for v in found["eager"].values()} <= {"pass", "quality warning"} and len(found["eager"]) == len(
        cases
    )
    assert {v.status for v in found["wrong"].values()} - {"pass"}
    before = (tmp_path / "wrong" / "log.jsonl").read_bytes()
    assert run_tasks(tasks, out=tmp_path, resume=True) == found
    assert (tmp_path / "wrong" / "log.jsonl").read_bytes() == before


def test_samples_are_the_same_each_time() -> None:
    cases = plan(tier="smoke", ops=["abs", "add"])
    assert spread(cases, 1) == cases and set(spread(cases, 2)) < set(cases)
    assert [c.op for c in first_of_each(cases, 1, lambda case: True)] == ["abs", "add"]
