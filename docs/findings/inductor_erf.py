"""inductor on a CPU has float32 erf right to an absolute error of 1e-7 only: near 0 its digits are lost."""

import sys

import torch

x = torch.tensor([1e-30, 1e-8, 1e-5, -0.0092936])
found = torch.compile(torch.erf, backend="inductor")(x)
exact = torch.erf(x.double())
print("expected", exact.tolist())
print("eager   ", torch.erf(x).tolist())
print("inductor", found.tolist())
sys.exit(1 if ((found.double() - exact).abs() > 1e-5 * exact.abs()).any() else 0)
