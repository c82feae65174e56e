"""Whether a profiler is active, and named ranges in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

import torch
from torch._C._autograd import DeviceType as DeviceType
from torch._guards import CompileContext
from torch.autograd import profiler

Range = Callable[[str], AbstractContextManager[Any]]
"""Makes a range of this name."""
fast_range: Range = torch._C._profiler._RecordFunctionFast
"""Makes a range that takes 2 us, where ``torch.profiler.record_function`` takes 30. It shows as an operator, not as an
annotation, so kernels of a GPU count as its own.
"""
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


def graph_range(kind: str) -> str:
    """What profilers show of the graph of this kind that is compiled now, such as ``keel forward graph 0/1``: with
    PyTorch's number of the compilation, if Dynamo asked for it.
    """
    number = CompileContext.current_compile_id()
    return f"keel {kind} graph" if number is None else f"keel {kind} graph {number}"
