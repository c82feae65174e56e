"""What a process may have run that others are forked from."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MODES = ("forward",) if torch.backends.cuda.is_built() else ("forward", "training")
"""A backward pass starts autograd's threads where PyTorch is built for devices, and after that nobody may fork."""
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


@contextmanager
def no_devices() -> Iterator[None]:
    """While it lasts PyTorch finds no CUDA device, and does not start CUDA to find one.

    Tracing asks whether there is one. CUDA, once started, works in no process forked later; one that is forked after
    this ended finds what is there.
    """
    before = {name: os.environ.get(name) for name in _HIDDEN}
    os.environ.update(_HIDDEN)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
