"""The device that a backend works on, where that is not the host: whether eager PyTorch computes there, and waiting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import cache
from typing import Any

import torch

from keel import KeelError
from keel.plugin import Arithmetic

HOST = "cpu"
FACTS = "numeric_facts"
OF_PYTORCH = ("cpu", "cuda", "meta", "mps", "xpu")
"""Devices that PyTorch itself registers."""


@cache
def has_eager(device: str) -> bool:
    """True if eager PyTorch runs on the device. A vendor's device may lack an eager mode."""
    try:
        read_value(device)
    except Exception:
        return False
    return True


def check_registered(backend: str, device: str) -> None:
    """Raises KeelError[not-here] if ``import torch`` does not register the device, as a new process shows.

    A plugin's module may register it, but processes that draw and judge cases import PyTorch and no plugin.
    """
    if device in OF_PYTORCH:
        return
    program = "import sys, torch; torch.device(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, device], capture_output=True, text=True, check=False)
    if done.returncode:
        raised = (done.stderr.strip().splitlines() or [f"The process ended with {done.returncode}."])[-1]
        raise KeelError(
            "not-here",
            f"{backend} cannot be judged: `import torch` does not make its device {device!r} known to PyTorch.",
            {"a process that imports torch alone": raised},
            do="Register the device in an entry point of group torch.backends, install that package, and leave "
            "TORCH_DEVICE_BACKEND_AUTOLOAD unset (docs/how/bring-up-a-device.md).",
        )


def declared_facts(device: str) -> Arithmetic:
    """What a device declares of its arithmetic: ``torch.<device>.numeric_facts``, a dict of fields of ``Arithmetic``.
    IEEE arithmetic if it declares nothing. Raises KeelError[bad-plugin] for facts that no device can have.
    """
    try:
        facts = getattr(torch.get_device_module(device), FACTS, None)
    except (RuntimeError, AttributeError):  # PyTorch has no module of the device
        return Arithmetic()
    if facts is None:
        return Arithmetic()
    known = {f.name for f in fields(Arithmetic)}
    if not isinstance(facts, Mapping) or (unknown := sorted(map(str, facts.keys() - known))):
        raise KeelError(
            "bad-plugin",
            f"torch.{device}.{FACTS} cannot be read.",
            {"facts": f"Unknown: {', '.join(unknown)}." if isinstance(facts, Mapping) else "It is not a dict."},
            do=f"It has {', '.join(sorted(known))}, as keel.plugin.Arithmetic takes them.",
        )
    return Arithmetic(**facts)


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
