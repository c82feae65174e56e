"""Eager fmod and remainder of float32 on a CPU give NaN where the quotient overflows, by the lengths of rows."""

import sys

import torch

x, y = torch.full((16,), 3e38), torch.full((16,), 1e-30)
found = torch.fmod(x, y), torch.remainder(x, y)
print("expected", torch.fmod(x.double(), y.double())[0].item())
print("eager   ", found[0][0].item(), found[1][0].item(), "alone", torch.fmod(x[:1], y[:1]).item())
sys.exit(1 if any(r.isnan().any() for r in found) else 0)
