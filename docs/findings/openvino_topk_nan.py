"""openvino's topk leaves out NaN, which counts as the greatest."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x * 1).topk(2).values


x = torch.tensor([3.0, float("nan"), 1.0, 2.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if found.isnan().equal(expected.isnan()) else 1)
