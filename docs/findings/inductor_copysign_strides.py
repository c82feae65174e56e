"""inductor lays copysign of a transposed and a dense operand out as the second one; eager as the first."""

import sys

import torch


def program(x, y):
    return torch.copysign(x, y)


x, y = torch.randn(5, 7).t(), torch.randn(7, 5)
expected = program(x, y)
found = torch.compile(program, backend="inductor")(x, y)
print("expected", tuple(expected.shape), "with strides", expected.stride())
print("found   ", tuple(found.shape), "with strides", found.stride())
sys.exit(0 if found.stride() == expected.stride() else 1)
