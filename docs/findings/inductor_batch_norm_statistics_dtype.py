"""inductor gives running statistics of 16 bits back in float32 where batch norm returns them."""

import sys

import torch


def program(x, mean, var):
    return torch.ops.aten._native_batch_norm_legit_functional(x, None, None, mean, var, True, 0.1, 1e-5)[3:]


args = torch.randn(2, 6, 5).bfloat16(), torch.zeros(6).bfloat16(), torch.ones(6).bfloat16()
expected, found = program(*args), torch.compile(program, backend="inductor")(*args)
print("expected", [x.dtype for x in expected])
print("inductor", [x.dtype for x in found])
sys.exit(0 if [x.dtype for x in found] == [x.dtype for x in expected] else 1)
