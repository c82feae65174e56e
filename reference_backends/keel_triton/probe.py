"""Probes whether Triton kernels can run on this machine: None, or a sentence that says why not."""

from __future__ import annotations

import importlib.util

import torch


def probe() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed."
    if not torch.cuda.is_available():
        return "No CUDA device was found."
    if torch.version.hip is not None:
        return "Its kernels are launched through CUDA's driver, and this PyTorch is built for ROCm."
    return None
