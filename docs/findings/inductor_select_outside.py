"""inductor of PyTorch 2.11 reads memory behind the operand for a select out of range, and raises nothing."""

import sys

import torch


def program(x):
    return x.select(0, 2) + 0


whole = torch.full((3, 3), 7.0)
try:
    result = torch.compile(program, backend="inductor")(whole[:2])
except (IndexError, RuntimeError) as raised:
    print(type(raised).__name__, str(raised).partition("\n")[0])
    sys.exit(0)
print("expected IndexError: the index 2 of a dimension of the size 2")
print("inductor", result.tolist(), "which lies behind the operand")
sys.exit(1)
