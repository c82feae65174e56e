"""Compiled pixel_unshuffle of an empty batch has other sizes than eager's."""

import sys

import torch


def program(x):
    return torch.nn.functional.pixel_unshuffle(x, 2)


x = torch.zeros(0, 4, 4, 2)
expected = program(x)
found = torch.compile(program, backend="inductor")(x)
print("expected", expected)
print("found   ", found)
sys.exit(0 if found.shape == expected.shape else 1)
