"""Whether Triton kernels can run on this machine, and what they depend on here."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version

import torch

from keel.cache import package_fingerprint


def probe() -> str | None:
    """None, or the sentence that says why kernels cannot run here."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed."
    if not torch.cuda.is_available():
        return "No CUDA device was found."
    if torch.version.hip is not None:
        return "Its kernels are launched through CUDA's driver, and this PyTorch is built for ROCm."
    return None


def fingerprint() -> str:
    """This package, Triton, and the devices."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    names = [f"{torch.cuda.get_device_name(i)} {torch.cuda.get_device_capability(i)}" for i in devices]
    return "\n".join([package_fingerprint("keel_triton"), version("triton"), str(torch.version.cuda), *names])
