"""The cheapest way to allocate a strided tensor on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Allocator = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
"""Allocates a tensor of these sizes, strides and dtype, with nothing in it yet."""


def allocator_on(device: torch.device) -> Callable[[], Allocator]:
    """Returns a function that chooses how to allocate tensors on ``device``. It is called once in a launch list, and
    what it returns is valid until the list ends.

    PyTorch has a function for generated code that does half the work of ``torch.empty_strided``. It allocates on the
    current device, and dispatch modes (fake tensors, counters) do not see it, so it is chosen if ``device`` is the
    current one and no mode is active. A default device and other function modes do not matter, because the device is
    given. Under deterministic algorithms the function does not fill the memory, as PyTorch's own kernels do not fill
    that of their results: a launch list writes memory before it reads it.
    """

    def plain(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    quick, modes, current = _quick(device), torch._C._len_torch_dispatch_stack, torch.cuda.current_device
    if quick is None:
        return lambda: plain
    if device.type == "cpu":
        return lambda: plain if modes() else quick
    return lambda: plain if modes() or device.index != current() else quick


def _quick(device: torch.device) -> Allocator | None:
    """PyTorch's function for generated code, if it has one for this device. It takes the device's index from its
    surroundings.
    """
    if device.type not in ("cpu", "cuda"):
        return None
    functions: Any = getattr(torch._C._dynamo, "guards", None)
    return getattr(functions, f"_empty_strided_{device.type}", None)
