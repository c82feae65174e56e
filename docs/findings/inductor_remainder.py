"""inductor computes float32 remainder as x - y * floor(x / y): rounded where it is exact, NaN for an infinite y."""

import sys

import torch

x = torch.tensor([16777216.0, 100.0, 1e10, 5.0]).repeat(16)
y = torch.tensor([-31.0, 0.1, 3.0, float("inf")]).repeat(16)
expected = torch.remainder(x.double(), y.double())
found = torch.compile(torch.remainder, backend="inductor")(x, y)
print("expected", expected[:4].tolist())
print("eager   ", torch.remainder(x, y)[:4].tolist())
print("inductor", found[:4].tolist())
sys.exit(0 if torch.equal(found, expected.float()) else 1)
