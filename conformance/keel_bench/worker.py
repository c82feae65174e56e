"""What a process of the bench does, and the environment that it starts in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from keel_conformance.workers.pool import ReportPhase

from . import memory_traffic, run_time
from .distributed import train_together
from .jobs import Job
from .placements import cost_sheets, random_programs
from .suites import PARTS

TIMED = frozenset({"never-worse", "mixtures", "prediction"})
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 31), "MALLOC_MMAP_THRESHOLD_": str(1 << 31)}
"""glibc's settings; its own allocator stands in for those that deployments preload."""


NO_MAPPING = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_MAX_": "0"}
"""The same where tensors are so large that glibc would map each by itself, whatever the threshold: it keeps them in its
heap. Otherwise new pages take three times as long as a copy."""


def work(job: Job, tell: ReportPhase) -> dict[str, Any]:
    """The job's figures, as they are read from a file, too."""
    tell("measuring")
    torch.set_num_threads(job.threads)
    figures: dict[str, Any] = json.loads(json.dumps(PARTS[job.part].measure(job)))
    return figures


def environment(shared: Path, job: Job, folder: Path) -> dict[str, str]:
    """Caches, no network, and Inductor compiling in the process: its CPU seconds are counted there.

    Only the jobs that measure compile time start with empty caches, in their own ``folder``. The others share caches
    that start empty with the bench, so that what Inductor prepares once for a machine is prepared once.

    Where placements and kernels are timed, malloc keeps freed memory, as the allocators of servers do. Otherwise it may
    return the memory to the operating system and get it back page by page. That can take a third of the time of a step,
    and whether it happens depends on what ran before.
    """
    caches = folder if job.part == "compile" else shared
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "KEEL_CACHE_DIR": str(caches / "keel"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        **({"TORCHINDUCTOR_COMPILE_THREADS": "1"} if job.device == "cpu" else {}),
        run_time.LOCK: str(caches / "lock"),
        cost_sheets.SHEETS: str(shared / "sheets.json"),
        train_together.FOLDER: str(shared / "exact-training"),
        "OMP_NUM_THREADS": str(job.threads),
        "HF_HUB_OFFLINE": "1",
        **(memory_traffic.ENVIRONMENT if job.part == "traffic" else {}),
        **(ALLOCATOR if job.part in TIMED else NO_MAPPING if job.part == "kernels-cpu" else {}),
        **(random_programs.environment(job) if job.part == "random" else {}),
    }
