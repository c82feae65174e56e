"""The steps in a profile of PyTorch, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.autograd.profiler_util import FunctionEvent

from keel.profile.profile_record import ProfiledStep, Span
from keel.torch_adapter import DeviceType

STEP = "keel profile: step"
"""The range of each step in a profile, before its number."""
MICROSECOND = 1e-6


def profiled_steps(events: Iterable[FunctionEvent], trace: Path, *, has_counters: bool) -> tuple[ProfiledStep, ...]:
    """The steps in the ``events`` of a profile, of which ``trace`` is the file. With ``has_counters``, the memory of
    each device becomes a counter in that file, so that viewers draw it over time.
    """
    known = [*events]
    data = json.loads(trace.read_text(encoding="utf-8"))
    memory = memory_of(data["traceEvents"])
    if has_counters:
        data["traceEvents"] += counters(data["traceEvents"], memory)
        trace.write_text(json.dumps(data), encoding="utf-8")
    on_host = [e for e in known if e.device_type == DeviceType.CPU]
    on_device = [e for e in known if e.device_type != DeviceType.CPU and not e.is_user_annotation]
    roots = [e for e in on_host if e.cpu_parent is None]
    steps = sorted((e for e in on_host if e.name in memory), key=lambda e: e.time_range.start)
    return tuple(_step(step, roots, on_device, memory[step.name]) for step in steps)


def _step(
    step: FunctionEvent, roots: Sequence[FunctionEvent], on_device: Sequence[FunctionEvent], memory: Mapping[str, Any]
) -> ProfiledStep:
    start, end = step.time_range.start, step.time_range.end
    # Autograd runs backward passes of accelerators on threads of its own.
    inside = [*step.cpu_children, *(e for e in roots if e is not step and start <= e.time_range.start < end)]
    device = [(e.time_range.start, e.time_range.end) for e in on_device if start <= e.time_range.start < end]
    return ProfiledStep(
        MICROSECOND * (end - start),
        tuple(_span(e, start) for e in sorted(inside, key=lambda e: e.time_range.start)),
        tuple((MICROSECOND * (a - start), MICROSECOND * (b - start)) for a, b in sorted(device)),
        memory,
    )


def _span(event: FunctionEvent, origin: float) -> Span:
    return Span(
        event.name,
        MICROSECOND * (event.time_range.start - origin),
        MICROSECOND * (event.time_range.end - origin),
        MICROSECOND * event.device_time_total,
        tuple(_span(e, origin) for e in event.cpu_children),
    )


def memory_of(events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, tuple[tuple[float, int], ...]]]:
    """The bytes above those at the start of each step in a trace, after each change on each device."""
    changes = sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: float(e["ts"]))
    memory = {}
    for step in (e for e in events if str(e.get("name", "")).startswith(STEP) and e.get("cat") == "user_annotation"):
        start, length = float(step["ts"]), float(step["dur"])
        series: dict[str, list[tuple[float, int]]] = {}
        for change in changes:
            if 0 <= (at := float(change["ts"]) - start) <= length:
                over_time = series.setdefault(_device(change["args"]), [(0.0, 0)])
                over_time.append((MICROSECOND * at, over_time[-1][1] + int(change["args"]["Bytes"])))
        memory[str(step["name"])] = {device: tuple(points) for device, points in series.items()}
    return memory


def counters(
    events: Sequence[Mapping[str, Any]], memory: Mapping[str, Mapping[str, Sequence[tuple[float, int]]]]
) -> list[dict[str, Any]]:
    """The memory of each step as counter events of the trace format."""
    steps = {e["name"]: e for e in events if e.get("name") in memory and e.get("cat") == "user_annotation"}
    return [
        {
            "ph": "C",
            "name": f"memory of the step on {device}",
            "pid": steps[name]["pid"],
            "ts": float(steps[name]["ts"]) + at / MICROSECOND,
            "args": {"bytes": value},
        }
        for name, series in memory.items()
        for device, points in series.items()
        for at, value in points
    ]


def _device(args: Mapping[str, Any]) -> str:
    name = DeviceType(int(args["Device Type"])).name.lower()
    return name if int(args["Device Id"]) < 0 else f"{name}:{args['Device Id']}"
