"""What a user may have on around a call, switched off: dispatch modes, default devices, autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def without_modes() -> Iterator[None]:
    """Where no mode of ``__torch_dispatch__`` or ``__torch_function__`` sees what is done: no fake tensors, no default
    device, nothing counted or recorded."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def without_autocast() -> AbstractContextManager[Any]:
    """Where operators compute in the dtypes that they are given."""
    guard: AbstractContextManager[Any] = torch._C._DisableAutocast()
    return guard
