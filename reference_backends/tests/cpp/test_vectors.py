"""Every loop that is marked for vectors is one in the compiler's output."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from keel import Source
from keel_cpp import target
from keel_cpp.build import FLAGS, unit
from keel_cpp.emitter import prelude
from keel_cpp.machines import WIDE
from keel_cpp.probe import COMPILER

from .kernels import TEXTS, kernel, sizes_of

# Without masks for every width, or where gathers are slow, the compiler leaves some loops scalar: newer ones take them
# for slow on Intel's CPUs before this one. Nothing runs here, so the CPU is not that of the machine.
CPU = ("-march=skylake-avx512", "-mtune=sapphirerapids")
# No instruction divides vectors of 64-bit integers, so remainders of them stay scalar.
NAMES = [n for n in TEXTS if n != "remainder"]
SIZES = ({"N": 640, "M": 771, "K": 40}, {"N": 768, "M": 775, "K": 40})  # alike, so that some kernels are merged
KERNELS = [kernel(n, **{s: v[s] for s in sizes_of(n)}) for n in NAMES for v in SIZES]


def reported(text: str, folder: Path) -> set[tuple[int, int]]:
    """The places at which the compiler says that it vectorized a loop, or unrolled a small one."""
    library = str(folder / "kernels.so")
    command = [COMPILER, *FLAGS, *WIDE, *CPU, "-fopt-info-optimized", "-x", "c++", "-", "-o", library]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    said = re.findall(r"<stdin>:(\d+):(\d+): optimized: +loop (?:vectorized|.*completely unrolled)", ran.stderr)
    return {(int(line), int(column)) for line, column in said}


def marked(lines: list[str]) -> list[tuple[range, int]]:
    """Stretches of lines, counted from 1, and how many marked loops each has: a loop from its head to its end, or a
    function of one step with the loops that call it, for compilers differ in where they say such a loop stands.
    """
    out: list[tuple[range, int]] = []
    for n, line in enumerate(lines, 1):
        if step := re.search(r"const auto (\w+_step) =", line):
            depth = len(line) - len(line.lstrip())
            end = next(i for i in range(n, len(lines)) if lines[i].startswith(" " * (depth - 2) + "}"))
            calls = [i for i in range(n, end) if "SIMD for" in lines[i] and f" {step[1]}(" in lines[i]]
            out.append((range(n, calls[-1] + 2), len(calls)))
        elif "SIMD for" in line and line.endswith("{"):
            depth = len(line) - len(line.lstrip())
            end = next(i for i in range(n, len(lines)) if lines[i].startswith(" " * depth + "}"))
            out.append((range(n, end + 2), 1))
    return out


def test_marked_loops_become_vectors(tmp_path: Path) -> None:
    _, text = unit([Source(k, target.render(k)) for k in KERNELS])
    assert text.count("SHARED void merged_") > 5
    start = prelude().count("\n")
    lines = text.split("\n")
    done = reported(text, tmp_path)
    loops = [(where, count) for where, count in marked(lines) if where.start > start]
    scalar = [
        "\n".join(lines[where.start - 1 : where.stop - 1])
        for where, count in loops
        if sum(line in where for line, _ in done) < count
    ]
    assert sum(count for _, count in loops) > 40
    assert not scalar, "\n\n".join(scalar)
