"""openvino's remainder and fmod by an infinity give NaN."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x, y):
    return x.remainder(y), x.fmod(y)


x, y = torch.tensor([1.0]), torch.tensor([float("inf")])
expected = program(x, y)
found = torch.compile(program, backend="openvino")(x, y)
print("expected", expected)
print("found   ", found)
sys.exit(0 if all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)) else 1)
