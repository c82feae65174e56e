"""The device that a backend works on, where that is not the host: whether eager PyTorch computes there, and waiting."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch

HOST = "cpu"


@cache
def has_eager(device: str) -> bool:
    """True if eager PyTorch runs on the device. A vendor's device may lack an eager mode."""
    try:
        read_value(device)
    except Exception:
        return False
    return True


def read_value(device: str) -> None:
    """A value from the device. Raises what that raises."""
    torch.ones((), device=device).item()


def synchronize(device: str) -> None:
    """Raises what a device on which eager PyTorch computes has not told yet: errors come with the first value read."""
    if has_eager(device):
        read_value(device)


def is_alive(device: str) -> bool:
    """False where it did, and does no more: a failed assertion ends all that a process has on a CUDA device."""
    try:
        synchronize(device)
    except Exception:
        return False
    return True


def default_device(device: str) -> AbstractContextManager[Any]:
    """Tensors that are made without naming a device are made on this one."""
    return nullcontext() if device == HOST else torch.device(device)


def force_ieee() -> None:
    """Makes PyTorch's CUDA libraries round as IEEE arithmetic does, and add in a fixed order, in the rest of this
    process.

    By default they may multiply float32 with 10 bits of precision, keep partial sums of half-precision tensors in half
    precision, and choose the fastest convolution. Backends can read the same settings and should respect them.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
