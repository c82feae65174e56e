"""Streams and events: the handle of the current CUDA stream, and calls in graphs that use streams or events."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload


def _no_stream(device: int) -> int:
    raise RuntimeError("This build of PyTorch has no CUDA.")


cuda_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _no_stream)
"""PyTorch's current stream on a CUDA device, as a cudaStream_t. The public call would make an object each time."""


def works_on_streams(node: fx.Node) -> bool:
    """True if a node records an event, waits for one or uses a stream in another way. From PyTorch 2.12 on, the node
    may also take values that must be computed before.
    """
    target = node.target
    if isinstance(target, OpOverload):
        return target.namespace == "streams"
    return isinstance(target, HigherOrderOperator) and str(target) == "control_deps"
