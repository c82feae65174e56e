"""Memory of a device that PyTorch does not know: a hook of loop targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from keel.registration import checked_call


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """What Keel needs of memory that is not a PyTorch device's. A handle is any object that stands for a block of it;
    the block is freed with the last reference to its handle.

    ``allocate`` takes a number of bytes, which may be 0, and returns a handle. ``put`` takes a tensor of bytes on the
    host and returns a handle of a block that begins with them: of a copy, or of the tensor's own memory where the
    device shares it. Keel does not change the tensor while the handle lives. ``get`` takes a handle, waits for all
    launches that came before, and returns the bytes of its block as a tensor on the host, with memory of its own or
    that of the block, which the tensor then keeps alive.

    Transfers are in the order of launches. All three functions may be called from several threads.
    """

    allocate: Callable[[int], Any]
    put: Callable[[torch.Tensor], Any]
    get: Callable[[Any], torch.Tensor]

    def __post_init__(self) -> None:
        what = "A DeviceMemory"
        checked_call(what, "allocate", self.allocate, "it takes a number of bytes, and returns a handle", takes=1)
        checked_call(what, "put", self.put, "it takes a tensor of bytes on the host, and returns a handle", takes=1)
        checked_call(what, "get", self.get, "it takes a handle, and returns a tensor of bytes on the host", takes=1)


def memory_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """The handle of the block that a launcher's tensor lies in, and the number of bytes before its first element.

    The launchers of a target with ``memory`` get tensors without data (of the device ``meta``), to which this applies.
    """
    handle = tensor.untyped_storage().keel_memory  # type: ignore[attr-defined]
    return handle, int(tensor.storage_offset()) * tensor.itemsize
