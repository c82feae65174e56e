"""Switches off modes that the user may have active around a call: dispatch modes, default devices, autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def without_modes() -> Iterator[None]:
    """A context in which no ``__torch_dispatch__`` or ``__torch_function__`` mode is active: no fake tensors, no
    default device, no FLOP counters or recorders.
    """
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def without_autocast() -> AbstractContextManager[Any]:
    """A context in which operators compute in the dtypes of their arguments."""
    guard: AbstractContextManager[Any] = torch._C._DisableAutocast()
    return guard
