"""openvino gives 0 for an index that is outside, and no error."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x, i):
    return (x + 1)[i] * 2


x, i = torch.arange(5.0), torch.tensor([7, 1])
try:
    program(x, i)
except IndexError as raised:
    print("expected", raised)
try:
    found = torch.compile(program, backend="openvino")(x, i)
except Exception as raised:
    print("found   ", raised)
    sys.exit(0)
print("found   ", found)
sys.exit(1)
