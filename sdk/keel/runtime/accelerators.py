"""What the runtime asks of accelerators, by PyTorch's interface for all of them. A vendor implements that once, for all
of PyTorch: a device guard with streams and events, and a module ``torch.<device>``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from keel import torch_adapter


def synchronize(devices: Iterable[torch.device]) -> None:
    """Waits until all work launched on the accelerators among ``devices`` is done."""
    for device in accelerators(devices):
        torch.accelerator.synchronize(device)


def is_capturing(devices: Iterable[torch.device]) -> bool:
    """True if work that is launched now on one of ``devices`` is captured in a graph instead of being run."""
    return any(map(torch_adapter.is_capturing, accelerators(devices)))


def accelerators(devices: Iterable[torch.device]) -> list[torch.device]:
    """Those of ``devices`` that are accelerators of this process."""
    here = torch.accelerator.current_accelerator()
    return [device for device in devices if here is not None and device.type == here.type]
