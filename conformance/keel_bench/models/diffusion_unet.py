"""The UNet of "Denoising Diffusion Probabilistic Models" (Ho et al., 2020), by default with the widths for CIFAR-10."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.models.model_case import ModelCase

WIDTHS = (128, 256, 256, 256)
"""Channels at each resolution: 36 million parameters."""
BLOCKS, SIDE, ATTENDED = 2, 32, 16
"""Residual blocks of each resolution, pixels of a side, and the side at which the network attends."""
GROUPS = 32


class Residual(nn.Module):
    """Two convolutions behind group norms; the time is added between them."""

    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(GROUPS, inner), nn.GroupNorm(GROUPS, outer)
        self.first, self.second = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time, outer)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(F.silu(self.first_norm(x))) + self.time(F.silu(time))[:, :, None, None]
        out: Tensor = self.skip(x) + self.second(F.silu(self.second_norm(y)))
        return out


class Attending(nn.Module):
    """Attention of one head between the pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.triple, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.triple(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        out: Tensor = self.out(mixed)
        return x + out


class Stage(nn.Module):
    """A residual block, and attention behind it where ``attends``."""

    def __init__(self, inner: int, outer: int, time: int, attends: bool) -> None:
        super().__init__()
        self.block = Residual(inner, outer, time)
        self.attention = Attending(outer) if attends else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        out: Tensor = self.attention(self.block(x, time))
        return out


class UNet(nn.Module):
    """Predicts the noise in images ``x`` at the times ``t``."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS, blocks: int = BLOCKS) -> None:
        super().__init__()
        base, time = widths[0], 4 * widths[0]
        self.base = base
        self.time = nn.Sequential(nn.Linear(base, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, base, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        width, skipped, sides = base, [base], [SIDE >> i for i in range(len(widths))]
        for i, (outer, side) in enumerate(zip(widths, sides, strict=True)):
            for _ in range(blocks):
                self.down.append(Stage(width, outer, time, side == ATTENDED))
                width = outer
                skipped.append(width)
            if i < len(widths) - 1:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                skipped.append(width)
        self.middle = nn.ModuleList([Stage(width, width, time, True), Stage(width, width, time, False)])
        for i, (outer, side) in reversed(list(enumerate(zip(widths, sides, strict=True)))):
            for _ in range(blocks + 1):
                self.up.append(Stage(width + skipped.pop(), outer, time, side == ATTENDED))
                width = outer
            if i:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.leave = nn.GroupNorm(GROUPS, width), nn.Conv2d(width, 3, 3, padding=1)
        self.blocks = blocks

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(sinusoids(t, self.base))
        x = self.enter(x)
        skipped = [x]
        for i, stage in enumerate(self.down, 1):
            x = stage(x, time)
            skipped.append(x)
            if i % self.blocks == 0 and i < len(self.down):
                x = self.shrink[i // self.blocks - 1](x)
                skipped.append(x)
        for stage in self.middle:
            x = stage(x, time)
        for i, stage in enumerate(self.up, 1):
            x = stage(torch.cat((x, skipped.pop()), 1), time)
            if i % (self.blocks + 1) == 0 and i < len(self.up):
                x = self.grow[i // (self.blocks + 1) - 1](F.interpolate(x, scale_factor=2.0))
        noise: Tensor = self.leave(F.silu(self.norm(x)))
        return noise


def sinusoids(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of the times, at frequencies from 1 down to 1/10000."""
    speeds = 10000.0 ** (-torch.arange(width // 2, device=t.device) / (width // 2 - 1))
    angles = t[:, None] * speeds
    return torch.cat((angles.sin(), angles.cos()), 1)


def diffusion_unet(batch: int, widths: tuple[int, ...] = WIDTHS, blocks: int = BLOCKS, seed: int = 0) -> ModelCase:
    """A denoising step; its loss is that of training, the distance from the noise."""
    torch.manual_seed(seed)
    model = UNet(widths, blocks).eval()
    images, noise = torch.randn(2, batch, 3, SIDE, SIDE)
    times = torch.randint(1000, (batch,))
    return ModelCase(
        "diffusion-unet", model, (images, times), {}, {}, lambda out: F.mse_loss(out.float(), noise.to(out.device))
    )
