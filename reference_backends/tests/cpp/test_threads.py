"""One OpenMP runtime in the process, and the same bits whatever the number of threads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from keel import Source
from keel.loops import evaluate, show
from keel_cpp import target

from .kernels import kernel

SIZES = {"N": 517, "M": 1031, "K": 300}
NAMES = (
    "softmax",
    "layer_norm",
    "column_sum",
    "total",
    "row_losses",
    "cumsum",
    "scatter",
    "transposed",
    "window",
    "argmax",
    "welford",
)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("static", [True, False], ids=["static", "symbolic"])
def test_the_number_of_threads_does_not_show(static: bool) -> None:
    wanted = {n: [s for s in SIZES if re.search(rf"\b{s}\b", str(kernel(n)))] for n in NAMES}
    kernels = [kernel(n, **{s: SIZES[s] if static else None for s in wanted[n]}) for n in NAMES]
    launchers = target.build([Source(k, target.render(k)) for k in kernels])
    for k, launcher in zip(kernels, launchers, strict=True):
        seen = []
        for count in (1, 2, 3, 5):
            torch.set_num_threads(count)
            generator = torch.Generator().manual_seed(0)
            buffers = []
            for b in k.buffers:
                values = torch.randn(evaluate(b.size, SIZES), generator=generator)
                buffers.append(values.abs().mul(100).to(b.dtype) if b.dtype == torch.int64 else values.to(b.dtype))
            launcher(*buffers, *(SIZES[s] for s in k.symbols))
            seen.append([b.view(torch.uint8) if b.dtype != torch.bool else b for b in buffers])
        for other in seen[1:]:
            assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True)), k.name


@pytest.mark.usefixtures("threads")
def test_threads_take_part() -> None:
    """A kernel large enough leaves threads behind that were not there before."""
    kernels = [kernel("in_place", N=2000, M=1000)]
    (launcher,) = target.build([Source(k, target.render(k)) for k in kernels])
    torch.set_num_threads(6)
    launcher(torch.ones(2_000_000), torch.empty(1))
    assert len(list(Path("/proc/self/task").iterdir())) >= 6


RUNTIMES = """
import re, torch
from keel import Source
from keel.loops import parse
from keel_cpp import target
k = parse({kernel!r})
(launcher,) = target.build([Source(k, target.render(k))])
launcher(torch.ones(2_000_000), torch.empty(1))
print(*set(re.findall(r"/\\S*lib(?:gomp|iomp5|omp)\\b\\S*", open("/proc/self/maps").read())))
"""


def test_one_openmp_runtime() -> None:
    """In a process of its own, for other packages may bring another."""
    text = RUNTIMES.format(kernel=show(kernel("in_place", N=2000, M=1000)))
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert len(ran.stdout.split()) == 1
