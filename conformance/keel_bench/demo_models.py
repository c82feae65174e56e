"""The models of the demo: published ones where their packages are installed, else networks of torch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.models import ModelCase, build

SIZES = {"line": (768, 30522, (64, 128, 256, 512)), "tiny": (64, 1000, (8, 16))}
"""For each scale: the encoder's width and vocabulary, and the channels of the residual network."""


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual and a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.out(attended))
        return self.norms[1](x + self.feed(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Two blocks between an embedding and a projection to the vocabulary."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64 or 1) for _ in range(2)))
        self.words = nn.Linear(width, words)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return _scored(self.words(self.blocks(self.embed(ids))), labels)


class Residual(nn.Module):
    """Two convolutions with batch norms, added to the input; the first halves the image if the channels grow."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Classifier(nn.Module):
    """A stem, residual blocks of growing width, and class scores."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        blocks = [Residual(before, after) for before, after in pairwise((channels[0], *channels))]
        self.body = nn.Sequential(nn.Conv2d(3, channels[0], 7, 4, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.scores = nn.Linear(channels[-1], 1000)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return _scored(self.scores(self.body(images)), labels)


def _scored(logits: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
    if labels is None:
        return {"logits": logits}
    return {"loss": F.cross_entropy(logits.flatten(0, -2), labels.flatten()), "logits": logits}


def encoder(scale: str) -> ModelCase:
    width, words, _ = SIZES[scale]
    torch.manual_seed(0)
    model, ids, labels = Encoder(width, words), torch.randint(words, (4, 64)), torch.randint(words, (4, 64))
    return ModelCase("encoder", model, (ids,), {}, {"labels": labels}, lambda out: out["loss"])


def residual(scale: str) -> ModelCase:
    torch.manual_seed(0)
    model, side = Classifier(SIZES[scale][2]), 224 if scale == "line" else 32
    images, labels = torch.randn(4, 3, side, side), torch.randint(1000, (4,))
    return ModelCase("residual", model, (images,), {}, {"labels": labels}, lambda out: out["loss"])


@dataclass(frozen=True)
class Shown:
    """A model of the demo: its title, and how to make it at a scale."""

    title: str
    make: Callable[[str], ModelCase]


def models() -> tuple[list[Shown], list[str]]:
    """The two models of the demo, and a sentence for each published one whose packages are not installed."""
    rows = (
        ("bert", "BERT (Hugging Face, two layers)", ("transformers",), Shown("an encoder with two layers", encoder)),
        ("resnet18", "ResNet-18 (timm)", ("timm", "torchvision"), Shown("a residual network", residual)),
    )
    results, sentences = [], []
    for name, title, packages, plain in rows:
        if lacking := [package for package in packages if find_spec(package) is None]:
            results.append(plain)
            sentences.append(f"{title} needs {' and '.join(lacking)}, so the demo shows {plain.title} in its place.")
        else:
            results.append(Shown(title, lambda scale, name=name: build(name, scale=scale)))  # type: ignore[misc]
    return results, sentences
