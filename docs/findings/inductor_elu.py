"""inductor computes elu, celu and selu of small float32 numbers with exp(x) - 1: 0 for -1e-8."""

import sys

import torch


def program(x):
    return torch.nn.functional.elu(x), torch.nn.functional.celu(x), torch.nn.functional.selu(x)


x = torch.tensor([-1e-8, -1e-5, -1e-3, 1.0]).repeat(16)
expected, found = program(x.double()), torch.compile(program, backend="inductor")(x)
for name, e, f in zip(("elu", "celu", "selu"), expected, found, strict=True):
    print(name, "expected", e[:4].tolist(), "found", f[:4].tolist())
right = [torch.allclose(e, f.double(), rtol=1e-5, atol=0) for e, f in zip(expected, found, strict=True)]
sys.exit(0 if all(right) else 1)
