"""The first step of a compiled model in a fresh process: its time, what it leaves, and what Keel did for it.

This module imports neither Keel nor a compiler, because a user's process does that in its first call, too.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from keel_conformance.models import ModelCase
from keel_conformance.workers.pool import ReportPhase

from ..cpu_time import cpu_seconds
from ..training_step import Step, leavings, prepare, run

LOG = "keel.compiler"
"""The logger to which Keel says of each graph what became of it."""
LOADED = "loaded"
COMPILED = "compiled"


@dataclass(frozen=True)
class FirstStep:
    """One process, by name: a model in a mode, compiled by ``torch.compile`` with these arguments."""

    name: str
    model: Callable[[], ModelCase]
    mode: str
    arguments: Callable[[], Mapping[str, Any]]
    threads: int = 1


def work(first: FirstStep, tell: ReportPhase) -> dict[str, Any]:
    """Seconds from the call of ``torch.compile`` to the end of the first step, of the clock and of the processor; a
    hash of each tensor that the step leaves; and Keel's log of each graph.
    """
    torch.set_num_threads(first.threads)
    tell("building the model")
    step = Step(first.mode)
    case = prepare(step, first.model())
    torch.manual_seed(0)
    tell("running the first step")
    with graphs_of_keel() as graphs:
        before, began = cpu_seconds(), time.perf_counter()
        out = run(step, case, torch.compile(case.model, **first.arguments()))
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
    left = {name: digest(tensor) for name, tensor in leavings(step, case, out).items()}
    return {"seconds": seconds, "cpu": cpu, "left": left, "graphs": graphs}


def torch_compile(backend: str) -> Mapping[str, Any]:
    """The arguments of ``torch.compile`` for a backend of PyTorch."""
    return {"backend": backend, "dynamic": False}


def keel_compile(backend: str) -> Mapping[str, Any]:
    """The same for a backend of Keel, and eager PyTorch for calls that the backend refuses."""
    return {"backend": "keel", "dynamic": False, "options": {"backends": [backend, "eager"]}}


@contextmanager
def graphs_of_keel() -> Iterator[list[dict[str, Any]]]:
    """What Keel logs of each graph meanwhile: the attribute ``keel`` of each record that has it."""
    handler, log = _Graphs(), logging.getLogger(LOG)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler.graphs
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _Graphs(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (facts := getattr(record, "keel", None)) is not None:
            self.graphs.append(facts)


def digest(tensor: torch.Tensor) -> str:
    """A hash of a tensor's bits."""
    plain = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().data).hexdigest()
