"""openvino computes int64 in 32 bits, and says nothing."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x + 1) * 2


x = torch.tensor([2**31, 2**40, 5])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.equal(found, expected) else 1)
