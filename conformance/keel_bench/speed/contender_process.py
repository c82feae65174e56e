"""One contender of a job in a process of its own: its first call, its rounds, and the memory that it takes."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from keel_conformance.models.model_case import ModelCase
from keel_conformance.workers.pool import ReportPhase

from ..cpu_time import cpu_seconds
from ..jobs import Job
from ..run_time import finish
from ..training_step import prepare, run, tensors
from .contenders import compiled_by

FIRST, ROUND, MEMORY = "first", "round", "memory"
"""What a contender is asked for, in this order; the rounds many times."""
WARM_UP = 2
MOST_STEPS = 100
LONG = 4.0
MIB = 2**20


@dataclass
class Contender:
    """Answers requests, with figures in plain data. It is sent to the process that it runs in before it has begun."""

    job: Job
    name: str
    build: Callable[[Job], ModelCase]
    case: Any = field(default=None, init=False)
    forward: Any = field(default=None, init=False)

    def __call__(self, request: tuple[str, float], tell: ReportPhase) -> dict[str, Any]:
        kind, seconds = request
        if kind == FIRST:
            return self.first(tell)
        return self.round(seconds) if kind == ROUND else self.memory()

    def first(self, tell: ReportPhase) -> dict[str, Any]:
        """Seconds of the first call and CPU seconds of its compilation, as ``compile_time`` counts them.

        An eager step comes first, so that nobody pays for what PyTorch sets up on its first use. ``unlike_eager`` is
        the relative distance between the results of both.
        """
        torch.set_num_threads(self.job.threads)
        tell("building the model")
        self.case = prepare(self.job.step, self.build(self.job))
        tell("running a step of eager PyTorch")
        self.forward = self.case.model
        expected = [t.detach().clone() for _, t in tensors(self.step())]
        tell(f"running the first step of {self.name}")
        before, start = cpu_seconds(), time.perf_counter()
        self.forward = compiled_by(self.name, self.case.model, self.job)
        own = [t.detach().clone() for _, t in tensors(self.step())]
        first, elapsed = cpu_seconds() - before, time.perf_counter() - start
        before = cpu_seconds()
        self.step()
        compiling = first - (cpu_seconds() - before)
        for _ in range(WARM_UP):
            self.step()
        return {"first_s": elapsed, "cpu_s": compiling, "unlike_eager": distance(own, expected)}

    def step(self) -> Any:
        """One step, its launches awaited."""
        out = self.launch()
        finish(self.job.device)
        return out

    def launch(self) -> Any:
        if self.job.device == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        self.case.model.zero_grad(set_to_none=True)
        return run(self.job.step, self.case, self.forward)

    def round(self, seconds: float) -> dict[str, Any]:
        """Milliseconds of a step. One warms up, and says how many steps take that many ``seconds``; where it takes much
        longer itself, it is the measured one.
        """
        start = time.perf_counter()
        self.step()
        once = time.perf_counter() - start
        if once > LONG * seconds:
            return {"ms": 1e3 * once}
        count = max(1, min(MOST_STEPS, round(seconds / once)))
        start = time.perf_counter()
        for _ in range(count):
            self.launch()
        finish(self.job.device)
        return {"ms": 1e3 * (time.perf_counter() - start) / count}

    def memory(self) -> dict[str, Any]:
        """MiB: ``peak_mib`` of a step, which is a device's allocated memory or the process's resident set; and
        ``process_mib``, the largest resident set since the process began, compilation with it.
        """
        process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        gc.collect()
        if self.job.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.step()
            reserved = torch.cuda.max_memory_reserved() / MIB
            peak = torch.cuda.max_memory_allocated() / MIB
            return {"peak_mib": peak, "reserved_mib": reserved, "process_mib": process}
        Path("/proc/self/clear_refs").write_text("5")  # Linux takes the present resident set as the peak
        self.step()
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
        return {"peak_mib": peak, "process_mib": process}


def distance(own: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest distance of a tensor from the expected one, relative to the norm of that."""
    return max(
        (float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30)))
        for a, b in zip(own, expected, strict=True)
    )
