"""aot_eager decomposes multi_margin_loss: without a reduction, the loss of a single example gets a dimension."""

import sys

import torch


def program(x, t):
    return torch.nn.functional.multi_margin_loss(x, t, reduction="none")


x, t = torch.tensor([0.1, 0.2, 0.4, 0.8]), torch.tensor(3)
expected = program(x, t)
found = torch.compile(program, backend="aot_eager")(x, t)
print("expected ", expected.shape)
print("aot_eager", found.shape)
sys.exit(0 if found.shape == expected.shape else 1)
