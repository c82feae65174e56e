"""Image classifiers with random weights: a vision transformer and four convolutional networks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model_case import ModelCase, calibrate, fill_zeros
from .vision_ops import allow_torchvision

CLASSES = 1000

# Our name: timm's name and arguments, at each scale.
TIMM: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "resnet18": {"line": ("resnet18", {}), "tiny": ("resnet18", {"layers": [1, 1, 1, 1]})},
    "resnet50": {"line": ("resnet50", {}), "tiny": ("resnet50", {"layers": [1, 1, 1, 1]})},
    "mobilenetv3": {"line": ("mobilenetv3_large_100", {}), "tiny": ("mobilenetv3_small_050", {})},
    "convnext": {
        "line": ("convnext_tiny", {}),
        "tiny": ("convnext_atto", {"depths": (1, 1, 2, 1), "dims": (16, 32, 64, 128)}),
    },
}


class Classifier(nn.Module):
    """A network that yields class scores, and with ``labels`` the loss as well."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, pixels: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.body(pixels)
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def vit(scale: str, device: str, seed: int, batch: int | None, length: int | None) -> ModelCase:
    """ViT-B/16 with two layers."""
    allow_torchvision()
    from transformers import ViTConfig, ViTForImageClassification

    sizes: dict[str, Any] = {"num_labels": CLASSES, "image_size": 224}
    if scale != "line":
        sizes |= dict(hidden_size=64, num_attention_heads=4, intermediate_size=128, image_size=64)
    config = ViTConfig(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    torch.manual_seed(seed)
    model: nn.Module = ViTForImageClassification(config)
    pixels, labels = _images(sizes["image_size"], device, seed, batch)
    return ModelCase("vit", model.to(device), (pixels,), {}, {"labels": labels}, lambda out: out.loss)


def convnet(name: str, scale: str, device: str, seed: int, batch: int | None) -> ModelCase:
    """One of timm's networks: whole, or with ``tiny`` a stage a block deep."""
    allow_torchvision()
    import timm

    torch.manual_seed(seed)
    known_as, sizes = TIMM[name][scale]
    model = Classifier(timm.create_model(known_as, num_classes=CLASSES, drop_rate=0.0, **sizes))
    fill_zeros(model, seed)
    model.to(device)
    pixels, labels = _images(224 if scale == "line" else 64, device, seed, batch)
    calibrate(model, pixels)
    return ModelCase(name, model, (pixels,), {}, {"labels": labels}, lambda out: out["loss"])


def _images(side: int, device: str, seed: int, batch: int | None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed + 1)
    n = 4 if batch is None else batch
    pixels = torch.randn(n, 3, side, side, generator=generator)
    return pixels.to(device), torch.randint(0, CLASSES, (n,), generator=generator).to(device)
