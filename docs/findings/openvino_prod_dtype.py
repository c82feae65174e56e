"""openvino multiplies and adds up int8 in int8 and returns that dtype; PyTorch does in int64."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x + 0).prod(), (x + 0).cumsum(0)


x = torch.tensor([100, 100], dtype=torch.int8)
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if found[0].dtype == found[1].dtype == torch.int64 else 1)
