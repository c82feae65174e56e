"""openvino's arange of fractions counts in integers."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return torch.arange(0, 1, 0.25) * 2 + x


x = torch.tensor([1.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.equal(found, expected) else 1)
