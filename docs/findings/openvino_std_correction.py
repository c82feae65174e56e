"""openvino's std() divides by n where it is asked to divide by n - 1."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x * 1).std()


x = torch.tensor([1.0, 2.0, 3.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.allclose(found, expected, rtol=1e-5, atol=0) else 1)
