"""A job of the suite ``distributed``: the processes that train the decoder in one way, under all compilers.

The processes stay for all compilers. If one fails, the others are ended, and new processes go on with the next
compiler. The reason is that of the process which failed first, for the others fail because they lost it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from keel_conformance.workers.pool import Outcome, WorkerPool
from keel_conformance.workers.spawn import fresh

from ..jobs import Job, Selection
from .parallel_ways import WAYS
from .rank_process import COMPILERS, REFERENCE, Rank, failure_file

PART = "distributed"
FOLDER = "KEEL_BENCH_EXACT_TRAINING"
"""The environment variable that names the folder of exact trainings, which jobs share."""
TIME_LIMIT = 600.0
"""Seconds after which a process has failed under a compiler."""
GRACE = 10.0
"""Seconds in which the other processes notice that one is lost."""
LAST_LINES = 6  # of what a process printed before it failed


class RankFailed(Exception):
    """A process failed: which one, and why."""


def programs() -> tuple[str, ...]:
    """The names of all ways to train together."""
    return tuple(WAYS)


def jobs(chosen: Selection) -> list[Job]:
    """One for each way."""
    return [chosen.job(PART, way, "training", precision="bf16") for way in chosen.models if way in WAYS]


def measure(job: Job) -> dict[str, Any]:
    """For each compiler the figures of each rank, or its ``failure`` in words; or why the way is ``left_out``. Raises
    RankFailed if exact training fails.
    """
    processes = WAYS[job.model].processes
    if job.device != "cpu" and (devices := torch.cuda.device_count()) < processes:
        return {"left_out": f"It takes {processes} GPUs, and there are {devices}."}
    reference = Path(os.environ[FOLDER]) / f"{job.scale}-{job.device}-{processes}"
    reference.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    answers: dict[str, Any] = {}
    while left := [name for name in (REFERENCE, *COMPILERS) if name not in answers]:
        if left[0] == REFERENCE and reference.exists():
            answers[REFERENCE] = {}
            continue
        try:
            answers.update(train(job, processes, reference, left))  # what came before a failure stays
        except RankFailed as e:
            failed = next(name for name in left if name not in answers)
            if failed == REFERENCE:
                raise
            answers[failed] = {"failure": str(e)}
    del answers[REFERENCE]
    return {"processes": processes, "seconds": time.monotonic() - begin, **facts(job.device), "compilers": answers}


def train(job: Job, processes: int, reference: Path, compilers: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each compiler with the figures of its ``ranks``. Raises RankFailed when a process fails."""
    with TemporaryDirectory(prefix="keel-bench-ranks-") as folder, ExitStack() as stack:
        ranks = [Rank(job, rank, processes, Path(folder), reference) for rank in range(processes)]
        together = Together(
            [
                stack.enter_context(closing(WorkerPool(fresh(rank, environment), last_lines=LAST_LINES)))
                for rank in ranks
            ],
            Path(folder),
        )
        for compiler in compilers:
            yield compiler, {"ranks": together.ask(compiler, TIME_LIMIT)}


@dataclass
class Together:
    """The ``pools`` of processes that answer together, one process each, by rank; ``folder`` is where they meet."""

    pools: Sequence[WorkerPool]
    folder: Path

    def ask(self, request: Any, limit: float) -> list[Any]:
        """What each process answers. Raises RankFailed with the reason of the process that failed first."""
        for pool in self.pools:
            pool.submit(request, limit)
        outcomes: dict[int, Outcome] = {}
        deadline = float("inf")
        while len(outcomes) < len(self.pools) and time.monotonic() < deadline:
            for rank, pool in enumerate(self.pools):
                if rank not in outcomes:
                    outcomes.update((rank, outcome) for _, outcome in pool.poll(0.05))
            if any(outcome.row is None for outcome in outcomes.values()):
                deadline = min(deadline, time.monotonic() + GRACE)
        failures = {rank: outcome for rank, outcome in outcomes.items() if outcome.row is None}
        if failures:
            first = min(failures, key=self.failed_at)
            raise RankFailed(f"Rank {first} of {len(self.pools)} failed. {failures[first].failure}")
        return [outcomes[rank].row for rank in range(len(self.pools))]

    def failed_at(self, rank: int) -> float:
        """The time at which a process raised; a process that could not say so was ended from outside, before all that
        lost it.
        """
        file = failure_file(self.folder, rank)
        return float(file.read_text()) if file.exists() else 0.0


def environment(request: Any, folder: Path) -> Mapping[str, str]:
    """This process's environment, for processes of one host: NCCL does not use NVLink's multicast, which some hosts
    do not offer to processes in containers, and then hangs or fails.
    """
    return {**os.environ, "NCCL_NVLS_ENABLE": "0"}


def facts(device: str) -> dict[str, Any]:
    """The devices and the library of the collectives."""
    if device == "cpu":
        return {"gpus": [], "nccl": None}
    count = torch.cuda.device_count()
    return {
        "gpus": [torch.cuda.get_device_name(i) for i in range(count)],
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
