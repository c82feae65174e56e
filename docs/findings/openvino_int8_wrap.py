"""openvino lets int8 and uint8 stop at the ends of their range, where they wrap around."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x + 100) + 10


x = torch.tensor([100, 1], dtype=torch.int8)
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.equal(found, expected) else 1)
