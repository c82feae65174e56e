"""openvino's powers of int64 stop at 32 bits."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x, y):
    return (x + 0) ** y


x, y = torch.tensor([3, -3]), torch.tensor([20, 21])
expected = program(x, y)
found = torch.compile(program, backend="openvino")(x, y)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.equal(found, expected) else 1)
