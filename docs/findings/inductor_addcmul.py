"""inductor on a CPU rounds the product of addcmul before it adds; eager's kernel does not, and the rest is lost."""

import sys

import torch


def program(x, y, z):
    return torch.addcmul(x, y, z)


y = torch.full((64,), 1 + 2.0**-12)
x = -(y * y)
exact = torch.addcmul(x.double(), y.double(), y.double())
found = torch.compile(program, backend="inductor")(x, y, y)
print("expected", exact[0].item())
print("eager   ", program(x, y, y)[0].item())
print("inductor", found[0].item())
sys.exit(0 if torch.allclose(found.double(), exact, rtol=1e-5, atol=0) else 1)
