"""What a process may have run that others are forked from. CUDA, once started, works in none that is forked later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MODES = ("forward",) if torch.backends.cuda.is_built() else ("forward", "training")
"""A backward pass starts autograd's threads where PyTorch is built for devices, and after that nobody may fork."""
_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def without_devices() -> None:
    """For the rest of this process, and in those forked from it, PyTorch finds no CUDA device."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", _CHECK: "1"}


@contextmanager
def no_device_init() -> Iterator[None]:
    """Tracing asks whether there is a CUDA device: while this lasts PyTorch asks the driver's NVML, and not CUDA, which
    that would start.
    """
    before = os.environ.get(_CHECK)
    os.environ[_CHECK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CHECK]
        else:
            os.environ[_CHECK] = before
