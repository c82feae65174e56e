"""Eager gradients of a learned scale round zero points below 0 toward 0, half a step off: -3 counts as -2."""

import sys

import torch

x, scale, zero_point = torch.tensor([9.0]), torch.tensor([0.5]), torch.tensor([-3.0])
_, found, _ = torch.ops.aten._fake_quantize_learnable_per_tensor_affine_backward.default(
    torch.ones(1), x, scale, zero_point, -8, 7, 1.0
)
expected = 7 - zero_point.item()  # the bound beyond which x lies, less the zero point
print("expected", expected)
print("eager   ", found.item())
sys.exit(0 if found.item() == expected else 1)
