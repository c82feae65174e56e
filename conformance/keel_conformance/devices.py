"""The device that a backend works on, where that is not the host: whether eager PyTorch computes there, and waiting."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

HOST = "cpu"


@cache
def computes(device: str) -> bool:
    """Whether eager PyTorch does. A vendor's device need not have an eager mode."""
    try:
        wait(device)
    except Exception:
        return False
    return True


def wait(device: str) -> None:
    """Errors of a device come late: with the first value that is read from it. Raises what it raises."""
    torch.ones((), device=device).item()


def answers(device: str) -> bool:
    """False where it did, and does no more: a failed assertion ends all that a process has on a CUDA device."""
    if device == HOST or not computes(device):
        return True
    try:
        wait(device)
    except Exception:
        return False
    return True


@contextmanager
def made_on(device: str) -> Iterator[None]:
    """Tensors that are made without naming a device are made on this one."""
    if device == HOST:
        yield
    else:
        with torch.device(device):
            yield


def exact() -> None:
    """Has PyTorch's libraries for CUDA round as IEEE arithmetic does and add in one order, in the rest of this process.

    As it is shipped they may multiply float32 with 10 bits, keep partial sums of halves in halves, and take whichever
    convolution is fastest. Backends are told by the same settings that this is not wanted.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
