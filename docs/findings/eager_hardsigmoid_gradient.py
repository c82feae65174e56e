"""Eager hardsigmoid of float64 has a gradient that is 1/6 in float32 only."""

import sys

import torch

x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
torch.nn.functional.hardsigmoid(x).backward()
print("expected", 1 / 6)
print("eager   ", x.grad.item())
sys.exit(1 if abs(x.grad.item() - 1 / 6) > 1e-15 else 0)
