"""inductor on a CPU loses float32 atanh near 0: 0 for small numbers, a relative error of 1e-4 at 2e-4."""

import sys

import torch

x = torch.tensor([1e-30, 3e-8, -2.4106e-4, 1e-3])
found = torch.compile(torch.atanh, backend="inductor")(x)
exact = torch.atanh(x.double())
print("expected", exact.tolist())
print("eager   ", torch.atanh(x).tolist())
print("inductor", found.tolist())
sys.exit(1 if ((found.double() - exact).abs() > 1e-5 * exact.abs()).any() else 0)
