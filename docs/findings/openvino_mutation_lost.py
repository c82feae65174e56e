"""openvino loses what a program writes to its arguments."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    x.add_(1)
    return x * 2


x, y = torch.zeros(2), torch.zeros(2)
program(x)
torch.compile(program, backend="openvino")(y)
print("expected", x)
print("found   ", y)
sys.exit(0 if torch.equal(x, y) else 1)
