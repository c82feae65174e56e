"""inductor lays the gradient of layer_norm of transposed arguments out like these; eager row by row."""

import sys

import torch


def program(grad, x, mean, rstd):
    return torch.ops.aten.native_layer_norm_backward(grad, x, [8], mean, rstd, None, None, [True, False, False])[0]


grad, x = torch.randn(8, 5).t(), torch.randn(8, 5).t()
_, mean, rstd = torch.native_layer_norm(x, [8], None, None, 1e-5)
expected, found = program(grad, x, mean, rstd), torch.compile(program, backend="inductor")(grad, x, mean, rstd)
print("expected", expected.stride())
print("inductor", found.stride())
sys.exit(0 if found.stride() == expected.stride() else 1)
