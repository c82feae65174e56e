"""openvino's maximum and minimum drop a NaN in their first operand."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x, y):
    return torch.maximum(x, y), torch.minimum(x, y)


x, y = torch.tensor([float("nan"), 1.0]), torch.tensor([1.0, float("nan")])
expected = program(x, y)
found = torch.compile(program, backend="openvino")(x, y)
print("expected", expected)
print("found   ", found)
sys.exit(0 if all(m.isnan().all() for m in found) else 1)
