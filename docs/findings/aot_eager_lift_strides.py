"""aot_eager keeps the strides of what lift_fresh_copy copies; eager copies it row by row."""

import sys

import torch


def program(x):
    return torch.ops.aten.lift_fresh_copy(x)


x = torch.ones(3, 2).t()
found = torch.compile(program, backend="aot_eager")(x)
print("expected ", program(x).stride())
print("aot_eager", found.stride())
sys.exit(0 if found.stride() == program(x).stride() else 1)
