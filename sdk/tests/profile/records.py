"""Records of made-up measurements: steps whose times are round numbers."""

from __future__ import annotations

from typing import Any

import torch

from keel import Cost
from keel.profile.part_work import Launch, PartWork, Work
from keel.profile.profile_record import Crossing, GraphRecord, ProfiledStep, ProfileRecord, Span
from keel.refusal_reports import RefusalReport
from keel.torch_adapter import Compilation, GraphBreak

F32 = torch.float32
SHEET = Cost(flops={F32: 1e9}, scalars=1e9, bandwidth=1e9)
FIRST, SECOND, LAST = "keel inference graph 0/0", "keel inference graph 1/0", "keel.eager head: part p1"


def span(name: str, start: float, end: float, *inside: Span, launched: float = 0.0) -> Span:
    """A span whose start and end are in milliseconds."""
    return Span(name, 1e-3 * start, 1e-3 * end, 1e-3 * launched, inside)


STEP = ProfiledStep(
    20e-3,
    (
        span(
            "Torch-Compiled Region: 0/0",
            1,
            19,
            span(
                FIRST,
                2,
                9,
                span(
                    "keel.acme layer: part p0",
                    2.5,
                    8.5,
                    span("aten::empty", 2.6, 2.7),
                    span("keel.acme layer.0: k_1 gelu", 3, 5),
                    span("keel.acme layer.1: k_1 gelu", 5, 7),
                    span("keel.acme layer.1: mm_3", 7, 8, span("aten::mm", 7, 8, span("aten::copy_", 7, 7.1))),
                    span("aten::clone", 8, 8.5, span("aten::copy_", 8.1, 8.4)),
                ),
            ),
            span("aten::nonzero", 10, 11),
            span(SECOND, 13, 18, span(LAST, 13, 17, span("aten::sort", 14, 16), span("aten::sort", 16, 17))),
        ),
    ),
    memory={"cpu": ((0.0, 0), (4e-3, 4096), (9e-3, 1024))},
)
KERNEL = Work(1e6, {F32: 1e5})
"""Its roof is a millisecond, of memory."""
PARTS = (
    PartWork(
        "keel.acme layer: part p0",
        "acme",
        Work(3e6),
        launches=(
            Launch("keel.acme layer.0: k_1 gelu", KERNEL),
            Launch("keel.acme layer.1: k_1 gelu", KERNEL),
            Launch("keel.acme layer.1: mm_3", Work(1e3, {F32: 5e5})),
        ),
    ),
)
TAIL = PartWork(LAST, "eager", Work(1e3), calls={"aten.sort.default": (Work(1e3), Work(2e3))})
LINE = "net.py:7   x.sort()"
REFUSAL = RefusalReport("acme", "aten.sort.default", "acme has no sort.", "a top-k", 2, (LINE,), "eager")


def record(**more: Any) -> ProfileRecord:
    """A step of 16 ms, of which kernels take 5.3 in the first graph, 1 between graphs and 3 in the second."""
    graphs = (
        GraphRecord(FIRST, PARTS),
        GraphRecord(SECOND, (TAIL,), (REFUSAL,), (Crossing(SECOND, "acme", "eager", 4096.0),)),
        GraphRecord("keel inference graph 2/0", (), (REFUSAL,)),  # a graph that no step runs
    )
    fields: dict[str, Any] = {
        "backends": ("acme", "eager"),
        "last_resorts": ("eager",),
        "is_training": False,
        "times": {"eager": (20e-3,), "keel": (15e-3, 16e-3, 90e-3), "inductor": (12e-3,)},
        "profiled": (STEP, STEP, STEP),
        "graphs": graphs,
        "breaks": (GraphBreak("It prints.", "Do not print.", "net.py:5   print()"),) * 2,
        "compilations": (
            Compilation("0/0", "forward", "net.py:3   def forward(self, x):", "", 2.0),
            Compilation("0/1", "forward", "net.py:4   self.n += 1", "self.n == 0", 1.0),
            Compilation("0/2", "forward", "net.py:4   self.n += 1", "self.n == 1", 1.5),
            Compilation("1/1", "torch_dynamo_resume_in_forward_at_5", "net.py:6   y", "size", 0.5),
        ),
        "steps": 6,
        "compiled_in": (0, 1, 2),
        "sheets": {"acme": SHEET},
    }
    return ProfileRecord(**(fields | more))
