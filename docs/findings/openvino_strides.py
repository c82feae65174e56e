"""openvino lays results out row by row, whatever the strides of its operands are."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x + 1) * 2


x = torch.arange(6.0).view(2, 3).t()
found = torch.compile(program, backend="openvino")(x)
print("expected strides", program(x).stride())
print("found    strides", found.stride())
sys.exit(0 if found.stride() == program(x).stride() else 1)
