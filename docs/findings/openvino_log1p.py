"""openvino computes log1p as log(1 + x): what log1p is for is lost."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x * 1).log1p()


x = torch.tensor([1e-8, 1e-5, 1e-3])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.allclose(found, expected, rtol=1e-5, atol=0) else 1)
