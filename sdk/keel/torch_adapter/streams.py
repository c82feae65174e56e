"""The stream that PyTorch launches kernels on, as the number that the CUDA driver knows it by."""
from __future__ import annotations

import torch


def cuda_stream(device: int) -> int:
    """PyTorch's current stream on CUDA device ``device``, a cudaStream_t; the public call makes an object each time."""
    return int(torch._C._cuda_getCurrentRawStream(device))
