"""openvino multiplies float32 matrices in bfloat16, unasked, on processors that have instructions for it (AMX)."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (x @ x) @ x


x = torch.arange(9.0).view(3, 3) / 7
expected = program(x.double())
found = torch.compile(program, backend="openvino")(x)
print("expected", expected.flatten().tolist())
print("found   ", found.flatten().tolist())
error = ((found - expected).abs() / expected).max().item()
print("relative error", error, "where a float32 has 6e-8")
sys.exit(1 if error > 1e-5 else 0)
