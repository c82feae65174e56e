"""Kernels and bytes of a transformer block: what is launched and what it reads and writes, beside Inductor's.

Library calls (matrix products, attention) are left out on both sides: the compilers share them. A kernel's bytes are
the sizes of its inputs and outputs, each counted once, whatever the caches do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from .compilers import EAGER, INDUCTOR, compiled
from .fallbacks import recorded
from .jobs import Job, Selection, beside_inductor

LOG = Path("inductor.log")  # in the worker's folder; the supervisor asks Inductor to write it
ENVIRONMENT = {"TORCH_LOGS": "inductor_metrics", "TORCH_LOGS_OUT": str(LOG)}

_NODE = re.compile(r"(\w*SchedulerNode)\([^()]*\), (\d+)")
WIDTH, HEADS, BATCH, LENGTH = 768, 12, 2, 128


class Block(nn.Module):
    """A pre-norm transformer block as GPT-2 has it, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            y.view(batch, length, HEADS, -1).transpose(1, 2) for y in self.qkv(self.before_attention(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.out(mixed)
        down: Tensor = self.down(F.gelu(self.up(self.before_mlp(x))))
        return x + down


def jobs(chosen: Selection) -> list[Job]:
    if chosen.backend == EAGER:
        return []
    return [
        Job("traffic", "block", compiler, mode)
        for mode in chosen.modes
        for compiler in dict.fromkeys((INDUCTOR, chosen.backend))
    ]


def measure(job: Job) -> dict[str, Any]:
    """Number of kernels and their bytes, over the graphs of a step (one, or forward and backward)."""
    torch.manual_seed(0)
    block, x = Block(), torch.randn(BATCH, LENGTH, WIDTH)
    with recorded(job.compiler) as dumps:
        forward = compiled(block, job.compiler)
        if job.mode == "inference":
            with torch.no_grad():
                forward(x)
        else:
            forward(x).sum().backward()
        kernels = inductors(LOG.read_text()) if dumps is None else keels(dumps)
    if not kernels:
        raise RuntimeError(f"{job.title} left no record of its kernels.")
    return {"kernels": len(kernels), "bytes": sum(kernels)}


def inductors(log: str) -> list[int]:
    """Bytes of each kernel Inductor generated, from its log of metrics (which counts in elements of 4 bytes)."""
    sizes: list[int] = []
    for line in log.splitlines():
        counted = line.partition("'nodes_num_elem': ")[2].partition("'node_runtimes'")[0]
        sizes += [
            4 * int(elements) for kind, elements in _NODE.findall(counted) if not kind.startswith(("Extern", "Nop"))
        ]
    return sizes


def keels(dumps: Path) -> list[int]:
    """Bytes of each kernel launch, from the launch lists that Keel dumps."""
    return [
        launch["bytes"]
        for file in sorted(dumps.glob("*/*launches.json"))
        for launch in json.loads(file.read_text())
        if launch["kind"] == "kernel"
    ]


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if job.compiler == INDUCTOR:
            continue
        name = f"traffic {job.model} {job.mode}"
        ratios = beside_inductor(job, results)
        if outcome.row is None or ratios.row is None:
            yield Criterion(name, None, "shown", False, outcome.failure or ratios.failure)
            continue
        for what, unit in (("kernels", 1), ("bytes", 2**20)):
            own, other = outcome.row[what] / unit, ratios.row[what] / unit
            yield Criterion(
                f"{name}: {what} / Inductor's",
                own / other,
                "shown",
                None,
                f"{own:.4g} and {other:.4g}" + (" MiB" if what == "bytes" else ""),
            )
