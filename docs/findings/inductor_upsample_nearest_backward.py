"""inductor's upsample_nearest2d_backward ignores the scales it is given: gradients go where nothing was read."""

import sys

import torch


def program(grad):
    return torch.ops.aten.upsample_nearest2d_backward(grad, [8, 8], [1, 1, 5, 5], 1.7, 1.7)


grad = torch.ones(1, 1, 8, 8)
read = torch.bincount((torch.arange(8) / 1.7).long(), minlength=5).float()
found = torch.compile(program, backend="inductor")(grad)
print("expected", torch.outer(read, read)[0].tolist())
print("eager   ", program(grad)[0, 0, 0].tolist())
print("inductor", found[0, 0, 0].tolist())
sys.exit(0 if torch.equal(found[0, 0], torch.outer(read, read)) else 1)
