"""Processes that train together answer together, and the first one that fails is the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from keel_bench.distributed import train_together
from keel_bench.distributed.rank_process import failure_file
from keel_bench.distributed.train_together import FOLDER, RankFailed, Together, jobs, measure
from keel_bench.jobs import Selection
from keel_conformance.workers.pool import Outcome, WorkerPool


class Answer:
    """A pool whose process answers in this way, or not at all."""

    def __init__(self, outcome: Outcome | None):
        self.outcome = outcome
        self.requests: list[Any] = []

    def submit(self, request: Any, limit: float) -> None:
        self.requests.append(request)

    def poll(self, seconds: float) -> list[tuple[Any, Outcome]]:
        return [] if self.outcome is None else [(self.requests[-1], self.outcome)]


def together(folder: Path, *outcomes: Outcome | None) -> Together:
    return Together([cast(WorkerPool, Answer(outcome)) for outcome in outcomes], folder)


def test_answers_are_in_the_order_of_ranks(tmp_path: Path) -> None:
    assert together(tmp_path, Outcome({"ms": 1}), Outcome({"ms": 2})).ask("eager", 1.0) == [{"ms": 1}, {"ms": 2}]


def test_the_reason_is_that_of_the_first_to_fail(tmp_path: Path) -> None:
    failure_file(tmp_path, 0).write_text("12.0")
    failure_file(tmp_path, 1).write_text("11.0")
    ranks = together(tmp_path, Outcome(None, "It lost rank 1."), Outcome(None, "It raised."), Outcome({}))
    with pytest.raises(RankFailed, match=r"Rank 1 of 3 failed\. It raised\."):
        ranks.ask("keel", 1.0)


def test_a_process_that_was_killed_left_no_time_and_came_first(tmp_path: Path) -> None:
    failure_file(tmp_path, 0).write_text("11.0")
    ranks = together(tmp_path, Outcome(None, "It lost rank 1."), Outcome(None, "It died of SIGKILL."))
    with pytest.raises(RankFailed, match=r"Rank 1 of 2 failed\. It died of SIGKILL"):
        ranks.ask("keel", 1.0)


def test_nobody_waits_long_for_a_process_that_does_not_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_together, "GRACE", 0.01)
    with pytest.raises(RankFailed, match="Rank 1 of 2"):
        together(tmp_path, None, Outcome(None, "It raised.")).ask("keel", 1.0)


def test_others_are_measured_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (job,) = jobs(Selection(("ddp",), ("training",), "keel"))
    tried_names: list[str] = []

    def train(job: Any, processes: int, reference: Path, compilers: list[str]) -> Any:
        for name in compilers:
            tried_names.append(name)
            if name == "inductor":
                raise RankFailed("Rank 0 of 2 failed.")
            yield name, {"ranks": [name]}

    monkeypatch.setattr(train_together, "train", train)
    row = measure(job)
    assert tried_names == ["reference", "eager", "inductor", "keel"] and row["processes"] == 2
    assert row["compilers"] == {
        "eager": {"ranks": ["eager"]},
        "inductor": {"failure": "Rank 0 of 2 failed."},
        "keel": {"ranks": ["keel"]},
    }
