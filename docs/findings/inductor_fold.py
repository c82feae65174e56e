"""inductor's fold of 1 x 1 blocks from a transposed tensor is wrong, and overwrites memory that is not its own."""

import os

import torch


def program(x):
    return torch.nn.functional.fold(x, (7, 5), (1, 1))


x = torch.arange(2.0 * 35 * 5).view(2, 35, 5).transpose(1, 2)
expected = program(x)
found = torch.compile(program, backend="inductor")(x)
print("expected", expected[0, 1, 0].tolist())
print("found   ", found[0, 1, 0].tolist(), flush=True)
os._exit(0 if torch.equal(found, expected) else 1)  # an ordinary exit dies of the memory that was overwritten
