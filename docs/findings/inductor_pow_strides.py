"""inductor lays a number to the power of a channels_last tensor out like the tensor; eager row by row."""

import sys

import torch


def program(x):
    return torch.pow(2.0, x)


x = torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
found = torch.compile(program, backend="inductor")(x)
print("expected", program(x).stride())
print("inductor", found.stride())
sys.exit(0 if found.stride() == program(x).stride() else 1)
