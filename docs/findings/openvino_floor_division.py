"""openvino's division of integers with rounding_mode="floor" rounds towards zero."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x, y):
    return torch.div(x, y, rounding_mode="floor") + 0


x, y = torch.tensor([5, -5, 5, -5]), torch.tensor([3, 3, -3, -3])
expected = program(x, y)
found = torch.compile(program, backend="openvino")(x, y)
print("expected", expected)
print("found   ", found)
sys.exit(0 if torch.equal(found, expected) else 1)
