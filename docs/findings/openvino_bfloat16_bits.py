"""openvino returns the bits of bfloat16 as a float16 tensor: 0.1 becomes 1.45."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x * 1).bfloat16()


x = torch.tensor([0.1, 1.0, 3.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if found.dtype == torch.bfloat16 else 1)
