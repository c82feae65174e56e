"""The loop level: kernels in C++, rendered and compiled by the backend ``cpp``, that run on memory of the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import keel_cpp
from keel import Launcher, Source, aten_externs, loop_backend
from keel_privateuse1.device import NAME, native


def build(sources: Sequence[Source]) -> list[Launcher]:
    """A launcher for each kernel, which translates the addresses of its buffers for the device's compute unit.

    It launches on the current stream, so that a graph can record it.
    """
    return [_on_device(launcher) for launcher in keel_cpp.target.build(sources)]


def _on_device(launcher: Launcher) -> Launcher:
    def launch(*arguments: Any) -> None:
        inside = [native.in_kernel(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        native.launch(partial(launcher, *inside))

    return launch


target = replace(
    keel_cpp.target,
    name=NAME,
    device=NAME,
    build=build,
    externs=aten_externs(NAME, keel_cpp.target.dtypes),
    cost=None,
)
backend = loop_backend(target)
