"""inductor takes nextafter of 16-bit floats in float32: the neighbor is rounded back to the number itself."""

import sys

import torch

x = torch.tensor([1.0, -3.0, 0.0, 100.0], dtype=torch.bfloat16)
y = torch.tensor([2.0, 0.0, 1.0, 0.0], dtype=torch.bfloat16)
found = torch.compile(torch.nextafter, backend="inductor")(x, y)
print("eager   ", torch.nextafter(x, y).tolist())
print("inductor", found.tolist())
sys.exit(0 if torch.equal(found, torch.nextafter(x, y)) else 1)
