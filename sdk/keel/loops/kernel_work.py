"""The work of a kernel: the scalar operations that it executes, and the bytes of memory that it must move."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from keel.loops.ir import Apply, Kernel, Load, Loop, Reduce, Scan, Stmt, Store
from keel.types import Dim

MOVES = frozenset({"cast", "bitcast"})
"""Scalar ops that count as moves of elements."""


@dataclass(frozen=True)
class KernelWork:
    """``bytes`` are those of the elements that a kernel reads and writes, each buffer once, and no more than it
    accesses. ``operations`` are scalar operations, by the dtype of their results; a kernel that only moves elements has
    none.
    """

    bytes: float
    operations: dict[torch.dtype, float]


def kernel_work(kernel: Kernel, hint: Callable[[Dim], int]) -> KernelWork:
    """The work of one run of ``kernel``. ``hint`` estimates symbolic sizes."""
    operations: Counter[torch.dtype] = Counter()
    accesses: Counter[tuple[str, bool]] = Counter()  # by buffer, and whether they write

    def count(body: tuple[Stmt, ...], times: int) -> None:
        for stmt in body:
            match stmt:
                case Loop():
                    count(stmt.body, times * math.prod(hint(axis.size) for axis in stmt.axes))
                case Apply() if stmt.op not in MOVES:
                    operations[stmt.dtype] += times
                case Reduce() | Scan():
                    operations.update(dict.fromkeys(stmt.dtypes, times))
                case Load():
                    accesses[stmt.buffer, False] += times
                case Store():
                    accesses[stmt.buffer, True] += times
                    if stmt.mode != "write":
                        accesses[stmt.buffer, False] += times
                case _:
                    pass

    count(kernel.body, 1)
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    moved = sum(min(n, hint(buffers[name].size)) * buffers[name].dtype.itemsize for (name, _), n in accesses.items())
    return KernelWork(float(moved), dict(operations))
