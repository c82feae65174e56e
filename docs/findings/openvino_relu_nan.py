"""openvino's relu and clamp turn NaN into 0."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return x.relu(), x.clamp(0, 1)


x = torch.tensor([float("nan"), 2.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if all(y[0].isnan() for y in found) else 1)
