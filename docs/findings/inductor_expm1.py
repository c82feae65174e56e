"""inductor on a CPU computes float32 expm1 as exp(x) - 1: what expm1 is for is lost."""

import sys

import torch

x = torch.tensor([2.0**-24, 1e-5, 3e-3, -3e-3])
eager = torch.expm1(x)
found = torch.compile(torch.expm1, backend="inductor")(x)
exact = torch.expm1(x.double())
print("expected", exact.tolist())
print("eager   ", eager.tolist())
print("inductor", found.tolist())
wrong = ((found.double() - exact).abs() > 1e-5 * exact.abs()).any()
sys.exit(1 if wrong else 0)
