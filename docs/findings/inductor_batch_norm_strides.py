"""inductor lays batch_norm of a transposed argument out like the argument; eager row by row."""

import sys

import torch


def program(x):
    return torch.nn.functional.batch_norm(x, None, None, training=True)


x = torch.randn(2, 9, 8).transpose(1, 2)
expected = program(x)
found = torch.compile(program, backend="inductor")(x)
print("expected", tuple(expected.shape), "with strides", expected.stride())
print("found   ", tuple(found.shape), "with strides", found.stride())
sys.exit(0 if found.stride() == expected.stride() else 1)
