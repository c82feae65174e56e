"""A process that dies, hangs or raises says so, and the next job gets a new one."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from keel.minify import trial_process
from keel.minify.trial_process import MEMORY, TrialProcess


def double(n: int, say: Callable[[str], None]) -> int:
    return 2 * n


def die(say: Callable[[str], None]) -> None:
    say("computing")
    os.abort()


def sleep(say: Callable[[str], None]) -> None:
    time.sleep(60)


def wait(say: Callable[[str], None]) -> None:
    say("running")
    time.sleep(60)


def spin(say: Callable[[str], None]) -> None:
    say("compiling")
    say("running")
    while True:
        pass


def add_up(say: Callable[[str], None]) -> float:
    """Uses the threads of PyTorch, if there are any."""
    return float(torch.ones(1 << 22).sum())


def refuse(say: Callable[[str], None]) -> None:
    raise ValueError("no")


def reserve(size: int, say: Callable[[str], None]) -> int:
    """Takes address space that nobody writes to, as drivers of devices do."""
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    return size


def fill(size: int, say: Callable[[str], None]) -> None:
    torch.zeros(size, dtype=torch.int8)


@pytest.fixture(scope="module")
def process() -> Iterator[TrialProcess]:
    with TrialProcess() as made:
        yield made


@pytest.mark.slow  # starts Python
def test_ends_are_told_apart(process: TrialProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_process, "QUIET", 1.0)
    assert process.run(double, 4, seconds=60.0).result == 8
    died = process.run(die, seconds=60.0)
    assert died.end == "crash" and "SIGABRT while computing" in died.sentence
    assert process.run(sleep, seconds=60.0).end == "hang"
    assert process.run(add_up, seconds=60.0).result == 1 << 22
    monkeypatch.setattr(trial_process, "QUIET", 100.0)
    waited = process.run(wait, seconds=60.0, limits={"running": 0.5})
    assert waited.end == "hang" and waited.detail == "running"
    spun = process.run(spin, seconds=600.0, limits={"running": 0.2})
    assert spun.end == "hang" and spun.detail == "running"
    raised = process.run(refuse, seconds=60.0)
    assert raised.end == "raised" and raised.sentence == "ValueError: no"
    assert process.run(double, 5, seconds=60.0).result == 10
    assert process.run(reserve, 2 * MEMORY, seconds=60.0).result == 2 * MEMORY
    hungry = process.run(fill, 2 * MEMORY, seconds=60.0)
    assert hungry.end == "raised" and "can't allocate memory" in hungry.sentence
