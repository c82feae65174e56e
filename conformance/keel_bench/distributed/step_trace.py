"""What the profiler saw in one step: collectives in their order, waits of the host, and communication's overlap."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

STEP = "keel_bench.step"
"""The name of the range that the step is in: the profiler itself waits for the device outside of it."""
COLLECTIVE = re.compile(r"(?:_c10d_functional|c10d)::(?!_wrap_)_?(\w+?)(?:_out)?_?$")
"""An operator that communicates. Those that write to their inputs count as the others of that name."""
WAIT = "wait_tensor"
BACKWARD, GRAPH = "CompiledFunctionBackward", "backward"
"""What runs the backward graph of one forward graph, whoever compiled both; and how it is called here."""
READ = "aten::_local_scalar_dense"
"""The operator that gives a number to the host."""
SYNCHRONIZATION = re.compile(r"cuda(Device|Stream|Event)Synchronize|cudaMemcpy$|cu(Ctx|Stream|Event)Synchronize")
Event = Mapping[str, Any]
Spans = Sequence[tuple[float, float]]


def traced(step: Callable[[], Any], finish: Callable[[], None]) -> dict[str, Any]:
    """The figures of one ``step``, whose launches ``finish`` waits for."""
    finish()
    kinds = [kind for kind in (ProfilerActivity.CPU, ProfilerActivity.CUDA) if kind in supported_activities()]
    with TemporaryDirectory(prefix="keel-bench-trace-") as folder:
        with profile(activities=kinds, acc_events=True) as record:
            with record_function(STEP):
                step()
            finish()
        record.export_chrome_trace(f"{folder}/trace.json")
        return figures(json.loads(Path(folder, "trace.json").read_text())["traceEvents"])


def figures(events: Iterable[Event]) -> dict[str, Any]:
    """``order``, the collectives and the starts of backward graphs as they came; the number of ``waits`` for
    collectives; ``reads`` of numbers by the host and its ``synchronizations`` with the device; the number of
    ``kernels``, and ``hidden``, the part of the time of collectives in which another kernel ran, too. Where no device
    was seen, ``synchronizations`` and ``hidden`` are None.
    """
    spans = sorted((e for e in events if e.get("ph") == "X"), key=lambda e: float(e["ts"]))
    begin, end = next(_span(e) for e in spans if e["name"] == STEP and e["cat"] == "user_annotation")
    inside = [e for e in spans if begin <= float(e["ts"]) <= end]
    calls = [e for e in inside if e["cat"] == "cpu_op"]
    names = [str(e["name"]) for e in calls]
    runtime = [str(e["name"]) for e in inside if e["cat"] in ("cuda_runtime", "cuda_driver")]
    kernels = [e for e in spans if e["cat"] == "kernel"]
    order = list(ordered(calls))
    return {
        "order": [name for name in order if name != WAIT],
        "waits": order.count(WAIT),
        "reads": names.count(READ),
        "synchronizations": sum(SYNCHRONIZATION.match(name) is not None for name in runtime) if runtime else None,
        "kernels": len(kernels),
        "hidden": hidden(kernels) if kernels else None,
    }


def ordered(calls: Iterable[Event]) -> Iterator[str]:
    """The collectives and backward graphs among the calls, which are in the order of their starts. What a collective
    calls to do its work is not counted.
    """
    ends: dict[Any, float] = {}
    for call in calls:
        begin, end = _span(call)
        match = COLLECTIVE.match(call["name"])
        if call["name"] == BACKWARD:
            yield GRAPH
        elif match and begin >= ends.get(call["tid"], 0.0):
            ends[call["tid"]] = end
            yield match[1]


def hidden(kernels: Iterable[Event]) -> float | None:
    """The part of the time of NCCL's kernels in which another kernel runs. None without kernels of NCCL."""
    of_nccl: list[tuple[float, float]] = []
    others: list[tuple[float, float]] = []
    for kernel in kernels:
        (of_nccl if "nccl" in kernel["name"] else others).append(_span(kernel))
    total = sum(end - begin for begin, end in of_nccl)
    joined = union(others)
    covered = sum(max(0.0, min(b, d) - max(a, c)) for a, b in of_nccl for c, d in joined)
    return covered / total if total else None


def union(spans: Iterable[tuple[float, float]]) -> Spans:
    """The same time in spans that do not overlap."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _span(event: Event) -> tuple[float, float]:
    begin = float(event["ts"])
    return begin, begin + float(event["dur"])
