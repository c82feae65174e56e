"""What the Triton target takes on a GPU of the H100 and H200 generation, from NVIDIA's data sheet and what kernels
reach of it in practice.  ``keel bench --calibrate FILE --backend triton --device cuda`` measures the GPU at hand."""
import torch

from keel import Cost

COST = Cost(
    flops={torch.float32: 5e13, torch.float64: 5e13, torch.bfloat16: 6e14, torch.float16: 6e14}, scalars=5e12,
    bandwidth=3.5e12, launch=1e-5, call=5e-6, fuses=True)
