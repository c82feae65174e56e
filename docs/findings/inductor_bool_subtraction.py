"""inductor subtracts bools where eager refuses to: 1 - mask and mask - True have values when they are compiled."""

import sys

import torch


def numbers(mask):
    return 1 - mask


def bools(mask):
    return mask - True


def found(program, mask):
    try:
        return program(mask).tolist()
    except RuntimeError as raised:
        return str(raised).partition(",")[0]


mask = torch.tensor([True, False])
wrong = False
for program in (numbers, bools):
    eager, compiled = found(program, mask), found(torch.compile(program, backend="inductor"), mask)
    print("eager   ", eager)
    print("inductor", compiled)
    wrong |= isinstance(compiled, list)
sys.exit(1 if wrong else 0)
