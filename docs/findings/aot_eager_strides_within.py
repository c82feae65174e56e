"""Within a compiled program the strides of reflection_pad3d are not those that the result has, nor eager's."""

import sys

import torch


def program(x):
    y = torch.nn.functional.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect")
    return y, y.stride()


x = torch.randn(1, 3, 3, 3, 3).to(memory_format=torch.channels_last_3d)
result, seen = torch.compile(program, backend="aot_eager")(x)
print("expected", program(x)[1])
print("seen within the program", seen)
print("of the result          ", result.stride())
sys.exit(0 if seen == program(x)[1] else 1)
