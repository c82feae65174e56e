"""inductor floors the rounded quotient: 1 // 0.1 is 10, where the exact quotient is below 10 and eager gives 9."""

import sys

import torch


def program(x, y):
    return torch.div(x, y, rounding_mode="floor")


x, y = torch.ones(64), torch.full((64,), 0.1)
exact = torch.floor(x.double() / y.double())
found = torch.compile(program, backend="inductor")(x, y)
print("expected", exact[0].item())
print("eager   ", program(x, y)[0].item())
print("inductor", found[0].item())
sys.exit(0 if bool((found == exact).all()) else 1)
