"""A job that crashes, exits, raises or hangs costs itself, and what it was doing is named, however it was started."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest
import worker_tasks

from keel_conformance.workers.pool import Outcome, Start, WorkerPool, run_all
from keel_conformance.workers.spawn import forked, fresh

HERE = str(Path(__file__).parent)
JOBS = ["one", "abort", "two", "exit", "hang", "raise", "speak", "three"]


def starts(kind: str) -> Start:
    if kind == "forked":
        return forked(worker_tasks.do)
    return fresh(worker_tasks.do, lambda job, folder: {**os.environ, "PYTHONPATH": HERE, "SEEN": "as it was set"})


@pytest.fixture(scope="module", params=["forked", "fresh"])
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    return dict(run_all(JOBS, starts(request.param), at_once=3, time_limit=6.0))


def test_rows_come_back(outcomes: dict[str, Outcome]) -> None:
    rows = {job: o.row for job, o in outcomes.items() if not o.failure}
    assert rows == {"one": "ONE", "two": "TWO", "three": "THREE"}


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("abort", "It died of SIGABRT while working on abort."),
        ("exit", "It raised while working on exit."),
        ("hang", "It did not end within 6 s while working on hang."),
        ("raise", "ValueError: a sentence"),
        ("speak", "It raised while working on speak. last words"),
    ],
)
def test_a_failure_costs_its_own_job(outcomes: dict[str, Outcome], job: str, said: str) -> None:
    outcome = outcomes[job]
    assert outcome.row is None and said in outcome.failure
    assert outcome.doing == f"working on {job}"


@pytest.mark.parametrize("kind", ["forked", "fresh"])
def test_what_a_job_leaves_running_ends_with_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    ((_, outcome),) = run_all([f"leave {file}"], starts(kind))
    assert not outcome.failure
    limit = time.monotonic() + 10
    while worker_tasks.goes_on(file.read_text()):
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_fresh_process_has_its_environment_and_a_folder() -> None:
    ((_, outcome),) = run_all(["see SEEN"], starts("fresh"))
    seen, _, torch = outcome.row.partition(", ")
    assert seen.startswith("as it was set in ") and not seen.endswith(Path.cwd().name) and torch == "False"


def test_what_runs_when_all_is_stopped_has_no_outcome() -> None:
    found: dict[str, Outcome] = {}
    for job, outcome in run_all(["one", "hang", "two"], starts("forked"), stopped=lambda: bool(found)):
        found.update({job: outcome})
    assert list(found) == ["one"]


def done(pool: WorkerPool) -> Outcome:
    while not (found := pool.poll(0.5)):
        assert pool.busy == 1
    ((_, outcome),) = found
    return outcome


@pytest.mark.parametrize("kind", ["forked", "fresh"])
def test_a_process_takes_many_jobs_until_one_ends_it(kind: str) -> None:
    pids = []
    with closing(WorkerPool(starts(kind))) as pool:
        for job in ("pid", "mumble", "pid", "speak", "pid", "hang", "pid"):
            pool.submit(job, 1.0 if job == "hang" else 60.0)
            outcome = done(pool)
            if job == "pid":
                pids.append(outcome.row)
            elif job == "speak":
                assert outcome.failure == "It raised while working on speak. last words"
            elif job == "hang":
                assert outcome.failure.startswith("It did not end within 1 s while working on hang.")
        pool.submit("pid", 60.0, fresh=True)
        last = done(pool).row
        goes = [worker_tasks.goes_on(pid) for pid in (*pids, last)]
    assert pids[0] == pids[1] and len({*pids, last}) == 4
    assert goes == [False, False, False, False, True]
    assert not worker_tasks.goes_on(last)


def test_a_process_that_says_it_is_spent_is_given_no_more() -> None:
    with closing(WorkerPool(starts("forked"))) as pool:
        pids = []
        for job in ("pid", "tire", "pid"):
            pool.submit(job, 60.0)
            outcome = done(pool)
            assert not outcome.failure
            pids.append(outcome.row)
        assert pids[0] == pids[1] != pids[2] and not worker_tasks.goes_on(pids[0])


def test_processes_work_beside_each_other() -> None:
    with closing(WorkerPool(starts("forked"), 2)) as pool:
        pool.submit("hang", 60.0)
        pool.submit("one", 60.0)
        assert (pool.busy, pool.free) == (2, 0)
        assert done_of_two(pool).row == "ONE"
        assert (pool.busy, pool.free) == (1, 1)


def done_of_two(pool: WorkerPool) -> Outcome:
    while not (found := pool.poll(0.5)):
        assert pool.busy == 2
    return found[0][1]
