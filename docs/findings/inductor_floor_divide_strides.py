"""inductor lays floor_divide of a transposed matrix by a row out row by row; eager like the matrix."""

import sys

import torch


def program(x, y):
    return torch.floor_divide(x, y)


x, y = torch.randn(7, 5).t(), torch.randn(7)
expected = program(x, y)
found = torch.compile(program, backend="inductor")(x, y)
print("expected", tuple(expected.shape), "with strides", expected.stride())
print("found   ", tuple(found.shape), "with strides", found.stride())
sys.exit(0 if found.stride() == expected.stride() else 1)
