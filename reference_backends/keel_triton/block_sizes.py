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
from keel_triton.launch_plan import STRIP, Part, blocks, padded, steps

PROGRAMS = 264  # two programs per multiprocessor
FEW = 198  # three programs for two multiprocessors: enough of them, if strips of columns are whole cache lines
COLUMNS = 16384  # the bytes of a tile of columns: 128 times a cache line


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
    rows, outer = (prod(evaluate(a.size, sizes) for a in axes) for axes in (part.axes, part.outer))
    if part.rank == 0:
        return Blocks(1, 0, 1, 1)
    if part.rank == 1:
        return _lanes(part, rows)
    # A loop without steps at these sizes still has a block, because the source is the same.
    stepped = max((max(_length(s, sizes), 1) for s in steps(part)), default=0)
    return _tile(part, rows, outer, max(blocks(part), default=0), stepped)


def _length(loop: Loop, sizes: Mapping[str, int]) -> int:
    return prod(evaluate(a.size, sizes) for a in loop.axes)


def _lanes(part: Part, rows: int) -> Blocks:
    """One lane per row, and eight rows per thread if there are enough rows. Loops inside a lane count as work."""
    x = _between(128, _floor(rows // PROGRAMS), most_lanes(part))
    return Blocks(x, 0, max(1, min(4, x // 128)), -(-rows // x))


def _tile(part: Part, rows: int, outer: int, width: int, stepped: int) -> Blocks:
    """Rows by lanes: a block has one long row or several short ones. Columns are in strips of whole cache lines.

    Warps that share rows of 16-bit numbers wait for each other longer than for memory, so each takes more of them.
    """
    columns = columns_of(part)
    r = _between(32, padded(stepped), most_steps(part)) if stepped else 0
    lanes = max(width, r, 1)
    x = 1
    if part.axes:
        x = min(most_rows(part, lanes), padded(rows) if rows else 1)
        least = 16 if columns else 1
        while x > least and outer * -(-rows // x) < (FEW if columns else PROGRAMS):
            x //= 2
    each = 32 if part.itemsize <= 2 and not stepped and not columns else 8
    return Blocks(x, r, _between(1, x * lanes // (32 * each), 8 if columns else 16), outer * -(-rows // x))


def columns_of(part: Part) -> bool:
    """True if the rows of a block are neighbors in memory."""
    return part.contiguous == "x" and bool(part.axes)


def most_lanes(part: Part) -> int:
    """The most rows of a program in which each lane has a row."""
    return 256 if any(isinstance(s, Loop) for s in part.body) else 1024


def most_steps(part: Part) -> int:
    """The widest step of a loop."""
    return 128 if columns_of(part) else 2048 if part.axes else 8192


def most_rows(part: Part, lanes: int) -> int:
    """The most rows of a program in which a row has that many lanes."""
    return _between(16, COLUMNS // min(part.itemsize, 4) // lanes, STRIP) if columns_of(part) else max(1, 1024 // lanes)


def _floor(n: int) -> int:
    """The largest power of two that is at most n, and at least 1."""
    return 1 << (max(n, 1).bit_length() - 1)


def _between(low: int, n: int, high: int) -> int:
    return max(low, min(n, high))
