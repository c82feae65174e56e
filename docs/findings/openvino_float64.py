"""openvino computes float64 in float32, and hands the result out as float64."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x + 1) * 2


x = torch.tensor([1e-10, 1 / 3], dtype=torch.float64)
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.allclose(found, expected, rtol=1e-12) else 1)
