"""inductor lays logsigmoid of a transposed matrix out like its operand; eager row by row."""

import sys

import torch


def program(x):
    return torch.nn.functional.logsigmoid(x)


x = torch.randn(7, 5).t()
expected = program(x)
found = torch.compile(program, backend="inductor")(x)
print("expected", tuple(expected.shape), "with strides", expected.stride())
print("found   ", tuple(found.shape), "with strides", found.stride())
sys.exit(0 if found.stride() == expected.stride() else 1)
