"""openvino resamples by the ratio of the sizes, where a scale_factor was given: the places are others."""

import sys

import openvino.torch  # noqa: F401
import torch


def program(x):
    return (
        torch.nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear"),
        torch.nn.functional.interpolate(x, scale_factor=1.7, mode="nearest"),
    )


x = torch.arange(25.0).view(1, 1, 5, 5)
expected = program(x)
found = torch.compile(program, backend="openvino")(x)
for e, f in zip(expected, found, strict=True):
    print("expected", e[0, 0, 0].tolist())
    print("found   ", f[0, 0, 0].tolist())
sys.exit(0 if all(torch.allclose(e, f, atol=0.05) for e, f in zip(expected, found, strict=True)) else 1)
