"""inductor simplifies x * 0 to 0, also where x is infinite or NaN, and forgets the sign."""

import sys

import torch


def program(x):
    return x * 0


x = torch.tensor([float("inf"), float("nan"), 1.0])
found = torch.compile(program, backend="inductor")(x)
print("expected", program(x).tolist())
print("found   ", found.tolist())
sys.exit(0 if found.isnan().equal(program(x).isnan()) else 1)
