"""A write to a float64 tensor without dimensions is lost."""

import sys

import torch


def count(total, x):
    total.add_(x)


total = torch.zeros((), dtype=torch.float64)
compiled = torch.compile(count, backend="aot_eager")
for _ in range(3):
    compiled(total, torch.ones((), dtype=torch.float64))
print("expected", 3.0)
print("aot_eager", total.item())
sys.exit(1 if total.item() != 3 else 0)
