"""openvino's hardsigmoid turns NaN into 0."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return torch.nn.functional.hardsigmoid(x * 1)


x = torch.tensor([float("nan"), 2.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if found.isnan().equal(expected.isnan()) else 1)
