"""openvino gives float32 where a program draws float64."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return torch.rand(3, 4, dtype=torch.float64), x * 2 + 1


found = torch.compile(program, backend="openvino")(torch.ones(4, dtype=torch.float64))[0]
print("expected", torch.float64)
print("openvino", found.dtype)
sys.exit(0 if found.dtype == torch.float64 else 1)
