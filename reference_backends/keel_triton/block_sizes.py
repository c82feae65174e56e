"""Chooses block sizes and numbers of warps from sizes alone: enough programs to fill the GPU, and enough bytes in
flight per program.

The numbers fit NVIDIA's Hopper: 132 multiprocessors with about 2,000 threads each, and loads of 16 bytes per thread.
There is no autotuning: the result depends only on the arguments, so equal kernels compile once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from keel.loops import Loop, evaluate
from keel_triton.launch_plan import Part, blocks, padded, steps

PROGRAMS = 264  # two programs per multiprocessor
TILE = 4096  # the largest tile of rows by lanes


@dataclass(frozen=True, slots=True)
class Blocks:
    """The rows per program, the width of the steps (0 without steps), the warps per program, and the number of
    programs.
    """

    x: int
    r: int
    warps: int
    programs: int


def choose(part: Part, sizes: Mapping[str, int]) -> Blocks:
    """The blocks of ``part`` at these values of its size symbols; a dimension of size 0 gives no programs."""
    rows = prod(evaluate(d, sizes) for d in part.rows)
    if part.rank == 0:
        return Blocks(1, 0, 1, 1)
    if part.rank == 1:
        return _lanes(part, rows)
    # A loop without steps at these sizes still has a block, because the source is the same.
    stepped = max((max(_length(s, sizes), 1) for s in steps(part)), default=0)
    return _tile(part, rows, max(blocks(part), default=0), stepped)


def _length(loop: Loop, sizes: Mapping[str, int]) -> int:
    return prod(evaluate(a.size, sizes) for a in loop.axes)


def _lanes(part: Part, rows: int) -> Blocks:
    """One lane per row, and eight rows per thread if there are enough rows. Loops inside a lane count as work."""
    alone = any(isinstance(s, Loop) for s in part.body)
    x = _between(128, _floor(rows // PROGRAMS), 256 if alone else 1024)
    return Blocks(x, 0, max(1, min(4, x // 128)), -(-rows // x))


def _tile(part: Part, rows: int, width: int, stepped: int) -> Blocks:
    """Rows by lanes: a block has one long row or several short ones. Columns are in strips of whole cache lines."""
    columns = part.contiguous == "x" and bool(part.axes)
    r = 0
    if stepped:
        r = _between(32, padded(stepped), 128 if columns else 2048 if part.axes else 8192)
    lanes = max(width, r, 1)
    x = 1
    if part.axes:
        most = padded(rows) if rows else 1
        x = min(_between(16, TILE // lanes, 64) if columns else max(1, 1024 // lanes), most)
        least = 16 if columns else 1
        while x > least and -(-rows // x) < PROGRAMS:
            x //= 2
    elements = x * lanes
    warps = _between(1, elements // 256, 8) if elements <= 4096 else _between(8, elements // 512, 16)
    return Blocks(x, r, warps, -(-rows // x))


def _floor(n: int) -> int:
    """The largest power of two that is at most n, and at least 1."""
    return 1 << (max(n, 1).bit_length() - 1)


def _between(low: int, n: int, high: int) -> int:
    return max(low, min(n, high))
