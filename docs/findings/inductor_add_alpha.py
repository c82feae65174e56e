"""inductor cannot compile aten.add.Scalar and aten.sub.Scalar whose alpha stands in its place, not by its name."""

import sys

import torch

x, wrong = torch.ones(4), False
for op in (torch.ops.aten.add.Scalar, torch.ops.aten.sub.Scalar):
    print("expected", op(x, 2, 3).tolist())
    try:
        found = torch.compile(lambda x, op=op: op(x, 2, 3), backend="inductor")(x)
        print("inductor", found.tolist())
        wrong |= not torch.equal(found, op(x, 2, 3))
    except Exception as raised:
        print("inductor", type(raised).__name__, str(raised).partition("\n")[0])
        wrong = True
sys.exit(1 if wrong else 0)
