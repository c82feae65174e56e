"""aot_eager cannot compile a Fourier transform whose dimensions are not listed in their order."""

import sys

import torch


def program(x):
    return torch.fft.fftn(x, dim=(1, 0))


x = torch.ones(4, 3, dtype=torch.complex64)
print("expected ", program(x).stride())
try:
    print("aot_eager", torch.compile(program, backend="aot_eager", fullgraph=True)(x).stride())
except Exception as raised:
    lines = [line for line in str(raised).splitlines() if "out of bounds" in line]
    print("aot_eager", type(raised).__name__, lines[:1])
    sys.exit(1)
