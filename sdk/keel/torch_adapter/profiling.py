"""Whether a profiler is active, and named ranges in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from torch.autograd import profiler

Boxed = Callable[[list[Any]], Sequence[Any]]


def is_profiling() -> bool:
    """True while a profiler of PyTorch is active in this process: ``torch.profiler``, or NVTX ranges."""
    return profiler._is_profiler_enabled


def in_range(run: Boxed, name: str) -> Boxed:
    """``run`` in a range of this name, while a profiler is active."""

    @wraps(run)
    def ranged(args: list[Any]) -> Sequence[Any]:
        if not is_profiling():
            return run(args)
        with profiler.record_function(name):
            return run(args)

    return ranged
