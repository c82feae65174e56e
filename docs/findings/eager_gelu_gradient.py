"""Eager gelu of float32 has the gradient 0 at -8, where it is -4e-14, and a wrong one before that."""

import sys

import torch

x = torch.tensor([-5.0, -6.0, -8.0, -10.0] * 4, requires_grad=True)
torch.nn.functional.gelu(x).sum().backward()
exact = x.detach().double().requires_grad_()
torch.nn.functional.gelu(exact).sum().backward()
print("expected", exact.grad[:4].tolist())
print("eager   ", x.grad[:4].tolist())
sys.exit(0 if torch.allclose(x.grad.double(), exact.grad, rtol=1e-2, atol=0) else 1)
