"""Streams and events: the handle of the current stream, and calls in graphs that use streams or events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

_raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def stream_handle(device: int) -> int:
    """The driver's handle of PyTorch's current stream on accelerator number ``device``, such as a cudaStream_t. For
    CUDA that makes no object of the stream, since it is asked at each launch. Raises RuntimeError if the accelerator's
    streams have no handles, and if there is no accelerator.
    """
    if _raw_stream is not None:
        return _raw_stream(device)
    stream: Any = torch.accelerator.current_stream(device)
    return int(stream.native_handle)


def is_capturing(device: torch.device) -> bool:
    """True if work that is launched now on an accelerator is captured in a graph instead of being run."""
    stream: Any = torch.accelerator.current_stream(device)
    if hasattr(stream, "is_capturing"):  # from PyTorch 2.13 on
        return bool(stream.is_capturing())
    ask = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
    return ask is not None and bool(ask())


def works_on_streams(node: fx.Node) -> bool:
    """True if a node records an event, waits for one or uses a stream in another way. From PyTorch 2.12 on, the node
    may also take values that must be computed before.
    """
    target = node.target
    if isinstance(target, OpOverload):
        return target.namespace == "streams"
    return isinstance(target, HigherOrderOperator) and str(target) == "control_deps"
