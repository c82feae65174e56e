"""Eager gelu on a CPU gives NaN for infinity, in eights; one element alone gives infinity."""

import sys

import torch

x = torch.full((16,), float("inf"))
found = torch.nn.functional.gelu(x)
print("expected", x[:2].tolist())
print("eager   ", found[:2].tolist(), "alone", torch.nn.functional.gelu(x[:1]).tolist())
sys.exit(1 if found.isnan().any() else 0)
