"""inductor on a CPU gives infinity for float32 acosh of what is above 1.8e19; the result is below 90."""

import sys

import torch

x = torch.tensor([1e19, 1e20, 1e30, 3e38]).repeat(16)
found = torch.compile(torch.acosh, backend="inductor")(x)
print("expected", torch.acosh(x.double())[:4].tolist())
print("eager   ", torch.acosh(x)[:4].tolist())
print("inductor", found[:4].tolist())
sys.exit(0 if bool(found.isfinite().all()) else 1)
