"""Streams and events: the current stream as the CUDA driver knows it, and calls within graphs that work on them."""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload


def cuda_stream(device: int) -> int:
    """PyTorch's current stream on CUDA device ``device``, a cudaStream_t; the public call makes an object each time."""
    return int(torch._C._cuda_getCurrentRawStream(device))


def works_on_streams(node: fx.Node) -> bool:
    """Whether a node records an event, waits for one or works on a stream in another way, alone or (from PyTorch 2.12
    on) behind values that are to be computed before.
    """
    target = node.target
    if isinstance(target, OpOverload):
        return target.namespace == "streams"
    return isinstance(target, HigherOrderOperator) and str(target) == "control_deps"
