"""A graph for one value of a float is cached without the guard on that value, and runs for other values."""

import os
import sys
import tempfile

import torch


def clamped(x, bound):
    return (x * bound + 1).clamp(-bound, bound)


wrong = False
with tempfile.TemporaryDirectory() as folder:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    compiled = torch.compile(clamped, backend="inductor", dynamic=True)
    for bound in (0.5, 0.75, 1.25):
        x = torch.tensor([-3.0, 3.0], requires_grad=True)
        expected, result = clamped(x, bound).tolist(), compiled(x, bound).tolist()
        print("expected", expected)
        print("inductor", result)
        wrong |= result != expected
sys.exit(1 if wrong else 0)
