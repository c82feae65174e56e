"""inductor cannot run the backward pass of replication padding in channels_last: its own check of strides fails."""

import sys

import torch


def program(x):
    return torch.nn.functional.pad(x, (0, 2, 0, 1), mode="replicate")


def gradient(padded):
    x = torch.ones(3, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    y = padded(x)
    y.backward(torch.ones_like(y).to(memory_format=torch.channels_last))
    return x.grad


expected = gradient(program)
print("expected", expected[0, 0, 4].tolist())
try:
    found = gradient(torch.compile(program, backend="inductor"))
except Exception as raised:
    print("it raised", type(raised).__name__, str(raised).splitlines()[0])
    sys.exit(1)
print("found   ", found[0, 0, 4].tolist())
sys.exit(0 if torch.equal(found, expected) else 1)
