"""Eager gradients of embedding_bag divide a row's by how often another row was taken (scale_grad_by_freq)."""

import sys

import torch

table = torch.zeros(4, 2, requires_grad=True)
taken = torch.tensor([1, 1, 2])  # row 1 twice, row 2 once
torch.nn.functional.embedding_bag(taken, table, torch.tensor([0]), mode="sum", scale_grad_by_freq=True).sum().backward()
expected = [0.0, 1.0, 1.0, 0.0]
print("expected", expected)
print("eager   ", table.grad[:, 0].tolist())
sys.exit(0 if table.grad[:, 0].tolist() == expected else 1)
