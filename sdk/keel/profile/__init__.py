"""Profiles a model: where the time of its steps goes, and what would make it faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keel.explanation import with_plugins_for
from keel.plugin import Backend
from keel.profile.measure_steps import measure
from keel.profile.profile_report import Profile, report
from keel.settings import Costs, read_settings

__all__ = ["Profile", "profile"]


def profile(
    fn: Callable[..., Any],
    *args: Any,
    backends: Sequence[str | Backend] | None = None,
    placement: str = "auto",
    costs: Costs | None = None,
    dynamic: bool | None = None,
    steps: int = 20,
    inference: bool = False,
    inductor: bool = True,
    trace: Path | None = None,
    **kwargs: Any,
) -> Profile:
    """Compiles ``fn`` as ``keel.compile`` would, times ``steps`` steps of it in turns with eager PyTorch and Inductor,
    and profiles some more.

    A step includes the backward pass if a result needs gradients, unless it is ``inference``; no ``.grad`` is written.
    ``trace`` is a file for the trace of the profiler, which Perfetto opens. Raises what compiling raises.
    """
    settings = read_settings(None, {"backends": backends, "placement": placement, "costs": costs})
    settings = with_plugins_for(settings, fn, args, kwargs)
    record = measure(
        fn,
        args,
        kwargs,
        settings,
        steps=steps,
        inference=inference,
        dynamic=dynamic,
        inductor=inductor,
        trace=trace,
    )
    return report(record)
