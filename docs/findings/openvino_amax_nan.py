"""openvino's amax, amin and argmax pass over NaN."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return x.amax(), x.amin(), x.argmax()


x = torch.tensor([1.0, float("nan"), 3.0])
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if found[0].isnan() and found[1].isnan() and found[2] == expected[2] else 1)
