"""inductor reads an argument that is the negative view of another tensor without the sign."""

import sys

import torch


def program(x):
    return x * 2 + 1


x = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0])).conj().imag
found = torch.compile(program, backend="inductor")(x)
print("argument", x.tolist())
print("eager   ", program(x).tolist())
print("inductor", found.tolist())
sys.exit(0 if torch.equal(found, program(x)) else 1)
