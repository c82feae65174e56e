"""Makes a kept package: ``python make.py OUT.keel``. Kept packages are never made again: later versions load them."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.export import Dim, export

import keel


class Kept(nn.Module):
    """Products, a convolution, a norm, a softmax, views, a written buffer, a tied weight and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.tied = self.up.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, *, scale: int = 2) -> tuple[Tensor, Tensor, Tensor, int]:
        self.calls += 1
        y = torch.relu(self.norm(self.conv(x))).mean((-1, -2))
        z = self.down(torch.nn.functional.gelu(self.up(y))) + y @ self.tied.t() @ self.tied
        return z.softmax(-1) * scale, z.t()[:, 1:], self.calls, x.shape[0] + 1


def arguments(n: int) -> Tensor:
    """The arguments of a call."""
    return torch.linspace(-1, 1, n * 3 * 6 * 6).reshape(n, 3, 6, 6)


def model() -> nn.Module:
    """The model, with the same weights each time."""
    made = Kept().eval()
    with torch.no_grad():
        for k, weight in enumerate((*made.parameters(), made.norm.running_mean, made.norm.running_var)):
            weight.copy_(torch.linspace(0.1, 1, weight.numel()).reshape(weight.shape) * (-1) ** k * 0.5 + k / 7)
        made.norm.running_var.abs_()
    return made


if __name__ == "__main__":
    program = export(model(), (arguments(4),), {"scale": 2}, dynamic_shapes={"x": {0: Dim("n", min=3)}, "scale": None})
    keel.package(program, sys.argv[1], backends=["cpp"], targets=["x86-64-v2"])
