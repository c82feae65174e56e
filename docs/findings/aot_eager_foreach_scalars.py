"""A program with torch._foreach_addcmul or _foreach_addcdiv by a tensor of scalars runs, and cannot be compiled."""

import sys

import torch

xs, scalars, wrong = [torch.ones(3), torch.ones(2)], torch.tensor([2.0, 3.0]), False
for op in (torch._foreach_addcmul, torch._foreach_addcdiv):
    print("expected ", [x.tolist() for x in op(xs, xs, xs, scalars)])
    try:
        found = torch.compile(lambda xs, s, op=op: op(xs, xs, xs, s), backend="aot_eager")(xs, scalars)
        print("aot_eager", [x.tolist() for x in found])
    except Exception as raised:
        lines = [line for line in str(raised).splitlines() if "Expected scalars" in line]
        print("aot_eager", type(raised).__name__, lines[:1])
        wrong = True
sys.exit(1 if wrong else 0)
