"""A job that crashes, exits, raises or hangs costs itself, and what it was doing is named."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keel_conformance.closure.pool import Ended, run_all


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Ended]]:
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        import deeds

        jobs = ["one", "abort", "two", "exit", "hang", "raise", "three"]
        yield dict(run_all(jobs, deeds.do, at_once=3, time_limit=6.0))
    finally:
        sys.path.pop(0)


def test_results_come_back(outcomes: dict[str, Ended]) -> None:
    assert {job: e.result for job, e in outcomes.items() if not e.failure} == {
        "one": "ONE", "two": "TWO", "three": "THREE"}


@pytest.mark.parametrize("job, said", [
    ("abort", "It died of SIGABRT while working on abort."),
    ("exit", "It raised while working on exit."),
    ("hang", "It did not end within 6 s while working on hang."),
    ("raise", "ValueError: a sentence"),
])
def test_a_failure_costs_its_own_job(outcomes: dict[str, Ended], job: str, said: str) -> None:
    ended = outcomes[job]
    assert ended.result is None and said in ended.failure
    assert ended.doing == f"working on {job}"
