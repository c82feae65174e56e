"""aot_eager decomposes multilabel_margin_loss wrongly: classes after the first -1 count as targets."""

import sys

import torch


def program(x, t):
    return torch.nn.functional.multilabel_margin_loss(x, t)


x, t = torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([[3, -1, 1, 0]])
expected = program(x, t)
found = torch.compile(program, backend="aot_eager")(x, t)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.allclose(found, expected) else 1)
