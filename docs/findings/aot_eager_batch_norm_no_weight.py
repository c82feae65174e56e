"""A program with _batch_norm_no_update without a weight runs, and cannot be compiled as a whole nor exported."""

import sys

import torch


def program(x, mean, var):
    return torch.ops.aten._batch_norm_no_update(x, None, None, mean, var, 0.1, 1e-5)[0]


args = torch.randn(2, 8, 9), torch.zeros(8), torch.ones(8)
print("expected ", program(*args).shape)
try:
    print("aot_eager", torch.compile(program, backend="aot_eager", fullgraph=True)(*args).shape)
except Exception as raised:
    lines = [line for line in str(raised).splitlines() if "_select_batch_norm_backend" in line]
    print("aot_eager", type(raised).__name__, lines[:1])
    sys.exit(1)
