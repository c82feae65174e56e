"""inductor has erfinv of float32 near 1 wrong by more than a hundred ulps; eager has it to one."""

import sys

import torch

x = torch.tensor([0.9999999403953552, 0.9999990463256836])
expected = torch.erfinv(x.double())
found = torch.compile(torch.erfinv, backend="inductor")(x)
off = (found - expected).abs().max().item()
print("expected", expected.tolist())
print("eager   ", torch.erfinv(x).tolist())
print("inductor", found.tolist())
sys.exit(1 if off > 16 * 2.0**-22 else 0)  # an ulp is 2^-22 there
