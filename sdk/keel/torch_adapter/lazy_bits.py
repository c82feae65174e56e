"""Tensors whose memory holds their values with the other sign."""

from __future__ import annotations

import torch

_NEGATIVE = torch._C.DispatchKey.Negative


def has_negative_bit(x: torch.Tensor) -> bool:
    """The same as ``x.is_neg()``. In PyTorch 2.11 that call gives away Python's lock, and threads that compile kernels
    may keep it for tens of milliseconds.
    """
    return torch._C._dispatch_keys(x).has(_NEGATIVE)
