"""Streams and events: the handle of the current CUDA stream, and calls in graphs that use streams or events."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

_raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def cuda_stream(device: int) -> int:
    """PyTorch's current stream on CUDA device ``device``, as a cudaStream_t. The public call would make an object each
    time. Raises RuntimeError if PyTorch was built without CUDA.
    """
    if _raw_stream is None:
        raise RuntimeError("This build of PyTorch has no CUDA.")
    return _raw_stream(device)


def works_on_streams(node: fx.Node) -> bool:
    """True if a node records an event, waits for one or uses a stream in another way. From PyTorch 2.12 on, the node
    may also take values that must be computed before.
    """
    target = node.target
    if isinstance(target, OpOverload):
        return target.namespace == "streams"
    return isinstance(target, HigherOrderOperator) and str(target) == "control_deps"
