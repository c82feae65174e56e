"""Every loop that is marked for vectors is one in the compiler's output."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from keel import Source
from keel_cpp import target
from keel_cpp.build import flags, unit
from keel_cpp.probe import COMPILER, cpu
from keel_cpp.text import prelude

from .kernels import TEXTS, kernel, sizes_of

pytestmark = pytest.mark.skipif(
    not re.search(r"\bavx512bw\b", cpu()),
    reason="without masks for every width, some conversions and guarded loads stay scalar",
)
# No instruction divides vectors of 64-bit integers, so remainders of them stay scalar.
NAMES = [n for n in TEXTS if n != "remainder"]
KERNELS = [kernel(n, **{s: {"N": 640, "M": 771, "K": 40}[s] for s in sizes_of(n)}) for n in NAMES]


def reported(text: str, folder: Path) -> set[int]:
    """The lines in which the compiler says that it vectorised a loop, or unrolled one that does little."""
    command = [COMPILER, *flags(), "-fopt-info-optimized", "-x", "c++", "-", "-o", str(folder / "kernels.so")]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    said = re.findall(r"<stdin>:(\d+):\d+: optimized: +loop (?:vectorized|.*completely unrolled)", ran.stderr)
    return set(map(int, said))


def marked(lines: list[str]) -> list[range]:
    """From where to where each loop goes that is marked, lines counted from 1."""
    out = []
    for n, line in enumerate(lines, 1):
        if "SIMD for" not in line:
            continue
        depth = len(line) - len(line.lstrip())
        end = n
        while line.endswith("{") and not lines[end].startswith(" " * depth + "}"):
            end += 1
        out.append(range(n, end + 1))
    return out


def test_marked_loops_become_vectors(tmp_path: Path) -> None:
    _, text = unit([Source(k, target.render(k)) for k in KERNELS])
    start = prelude().count("\n")
    lines = text.split("\n")
    done = reported(text, tmp_path)
    loops = [loop for loop in marked(lines) if loop.start > start]
    scalar = ["\n".join(lines[loop.start - 1:loop.stop]) for loop in loops if not done & set(loop)]
    assert len(loops) > 40
    assert not scalar, "\n\n".join(scalar)
