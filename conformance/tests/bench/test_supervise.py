"""A job that raises, dies or hangs costs its own row, and the row says how it went wrong."""
from __future__ import annotations

import subprocess
import sys

import pytest

from keel_conformance.bench.jobs import Job, Outcome
from keel_conformance.bench.suite import bars
from keel_conformance.bench.supervise import run_all, run_one, stop, trouble


def test_a_job_runs_in_its_own_process() -> None:
    outcome = run_one(Job("accuracy", "bert", "eager", "training", scale="tiny", rounds=1))
    assert outcome.failure == ""
    assert outcome.figures is not None
    assert outcome.figures["worst"] <= 1  # eager against itself; below 1 only by the floor
    assert outcome.figures["tensors"] > 40
    error, classes, left = bars({Job("accuracy", "bert", "eager", "training", scale="tiny", rounds=1): outcome})
    assert (error.holds, classes.holds, left.holds) == (True, True, True)


def test_a_job_that_raises_costs_its_own_row() -> None:
    wrong, told = Job("accuracy", "vgg", "eager", scale="tiny"), []
    outcomes = run_all([wrong], lambda job, outcome: told.append((job, outcome)))
    assert told == [(wrong, outcomes[wrong])]
    assert outcomes[wrong].figures is None
    assert "ValueError: there is no model 'vgg'" in outcomes[wrong].failure
    (row,) = bars(outcomes)
    assert row.holds is False and row.value is None and "vgg" in row.note


def test_a_job_that_hangs_is_ended() -> None:
    outcome = run_one(Job("accuracy", "bert", "eager"), time_limit=0.5)
    assert outcome.figures is None
    assert outcome.failure.startswith("did not end within 0.5 s.")


@pytest.mark.parametrize("status, log, said", [
    (0, "anything", ""),
    (1, "a\n\nb\n", "raised.\na\nb"),
    (-11, "last words\n", "died of SIGSEGV.\nlast words"),
    (None, "", "did not end within 3 s.\n"),
])
def test_trouble_is_put_in_words(status: int | None, log: str, said: str) -> None:
    assert trouble(status, 3.0, log) == said


def test_stopping_ends_what_a_job_left_running() -> None:
    script = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    job = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert job.stdout is not None
    child = int(job.stdout.readline())
    stop(job)
    job.stdout.close()
    # What is left of the child is at most a zombie that nobody has waited for.
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(child)], capture_output=True, text=True, check=False).stdout
    assert state.strip()[:1] in ("", "Z")


def test_every_part_has_a_row_for_a_failure() -> None:
    for part in ("accuracy", "dynamic", "compile", "run"):
        job = Job(part, "bert", "cpp", along="batch" if part == "dynamic" else "")
        rows = list(bars({job: Outcome(None, "died of SIGSEGV.")}))
        assert [row.holds for row in rows] == [False] and rows[0].note == "died of SIGSEGV."
