"""A backbone of detectors: a feature pyramid (Lin et al., 2017) on the stages of ResNet-50."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.models.model_case import ModelCase, calibrate
from keel_conformance.models.vision_ops import allow_torchvision

WIDTH, SIDE = 256, 512


class FeaturePyramid(nn.Module):
    """Brings the ``stages`` of a network to one width, and adds to each what is seen at the coarser ones."""

    def __init__(self, stages: Any, width: int) -> None:
        super().__init__()
        self.stages = stages
        inner = stages.feature_info.channels()
        self.lateral = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in inner)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in inner)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        images = [lateral(x) for lateral, x in zip(self.lateral, self.stages(pixels), strict=True)]
        for i in reversed(range(len(images) - 1)):
            images[i] = images[i] + F.interpolate(images[i + 1], size=images[i].shape[-2:])
        images = [smooth(x) for smooth, x in zip(self.smooth, images, strict=True)]
        return [*images, F.max_pool2d(images[-1], 1, 2)]


def resnet_fpn(batch: int, side: int = SIDE, width: int = WIDTH, seed: int = 0, **sizes: Any) -> ModelCase:
    """The pyramid on ResNet-50; ``sizes`` are keywords of timm that make the network smaller."""
    allow_torchvision()
    import timm

    torch.manual_seed(seed)
    stages = timm.create_model("resnet50", pretrained=False, features_only=True, out_indices=(1, 2, 3, 4), **sizes)
    model = FeaturePyramid(stages, width)
    pixels = torch.randn(max(batch, 2), 3, side, side)
    calibrate(model, pixels[:2])
    return ModelCase(
        "resnet50-fpn",
        model.eval(),
        (pixels[:batch],),
        {},
        {},
        lambda out: torch.stack([x.float().square().mean() for x in out]).sum(),
    )
