"""openvino's logical_not takes NaN for false."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x * 1).logical_not()


x = torch.tensor([1.0, 0.0, float("nan")])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.equal(found, expected) else 1)
