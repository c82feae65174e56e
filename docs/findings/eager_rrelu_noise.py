"""Eager rrelu in training gives back other noise than it multiplied by where the noise is not contiguous."""

import sys

import torch

torch.manual_seed(0)
x = -torch.ones(3, 2)
out, noise = torch.ops.aten.rrelu_with_noise_functional.default(x, torch.zeros(2, 3).t(), 0.1, 0.3, True)
off = (out - x * noise).abs().max().item()
print("expected", 0.0)
print("eager   ", off)
sys.exit(1 if off > 1e-6 else 0)
