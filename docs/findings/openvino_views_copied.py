"""openvino returns copies where a program returns views of its argument."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return x.view(-1), x + 1


x = torch.zeros(2, 2)
view, _ = torch.compile(program, backend="openvino")(x)
view.fill_(7)
print("expected", torch.full((2, 2), 7.0))
print("found   ", x)
sys.exit(0 if bool((x == 7).all()) else 1)
