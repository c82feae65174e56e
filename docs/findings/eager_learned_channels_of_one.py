"""Eager gradients of learned scales per channel are summed over all channels where the tensor has one dimension."""

import sys

import torch

scales, zero_points = torch.full((4,), 0.5), torch.zeros(4)
_, found, _ = torch.ops.aten._fake_quantize_learnable_per_channel_affine_backward.default(
    torch.ones(4), torch.tensor([-9.0, 0.3, 2.0, 9.0]), scales, zero_points, 0, -8, 7, 1.0
)
print("expected", tuple(scales.shape))
print("eager   ", tuple(found.shape))
sys.exit(0 if found.shape == scales.shape else 1)
