"""The entry point ``torch.backends``, by which ``import torch`` registers the device in every process.

It is in a module of its own: if the device is imported first, it imports PyTorch, which calls this function while the
device's module is not complete yet.
"""

from __future__ import annotations

from importlib import import_module


def register() -> None:
    """Registers the device with PyTorch."""
    import_module("keel_privateuse1.device")
