"""Recommenders over categories: DLRM (Naumov et al., 2019) and DeepFM (Guo et al., 2017), with embedding bags."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.models.model_case import ModelCase

DENSE, FIELDS, ROWS, PER_BAG = 13, 26, 100_000, 4
"""Criteo's numbers and categories of a row, the rows of a table (the larger tables are cut), and those of a bag."""


def layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers of these widths, with a ReLU between two."""
    pairs = [[nn.Linear(a, b), nn.ReLU()] for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*list(itertools.chain(*pairs))[:-1])


class Dlrm(nn.Module):
    """Products of every two embeddings, and of each with the dense features, go through the top layers."""

    def __init__(self, rows: int, width: int, bottom: Sequence[int], top: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(FIELDS))
        self.bottom = layers([DENSE, *bottom, width])
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = layers([width + pairs, *top, 1])
        self.register_buffer("pairs", torch.tril_indices(FIELDS + 1, FIELDS + 1, offset=-1))

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        x = self.bottom(dense)
        bags = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        rows = torch.stack([x, *bags], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        first, second = self.get_buffer("pairs")
        scores: Tensor = self.top(torch.cat((x, products[:, first, second]), 1))
        return scores.squeeze(1)


class DeepFm(nn.Module):
    """A factorization machine and a deep network that share their embeddings."""

    def __init__(self, rows: int, width: int, deep: Sequence[int]) -> None:
        super().__init__()
        self.rows = rows
        self.linear = nn.EmbeddingBag(FIELDS * rows, 1, mode="sum")
        self.factors = nn.Embedding(FIELDS * rows, width)
        self.deep = layers([FIELDS * width, *deep, 1])
        self.register_buffer("offsets", torch.arange(FIELDS) * rows)

    def forward(self, categories: Tensor) -> Tensor:
        index = categories + self.get_buffer("offsets")
        factors = self.factors(index)
        of_pairs = (factors.sum(1).square() - factors.square().sum(1)).sum(1) / 2
        scores: Tensor = self.linear(index).squeeze(1) + of_pairs + self.deep(factors.flatten(1)).squeeze(1)
        return scores


def dlrm(batch: int, rows: int = ROWS, seed: int = 0) -> ModelCase:
    """DLRM with the widths that its authors publish for Criteo's Kaggle data."""
    torch.manual_seed(seed)
    model = Dlrm(rows, 16, (512, 256, 64), (512, 256))
    inputs = (torch.randn(batch, DENSE), torch.randint(rows, (batch, FIELDS, PER_BAG)))
    return _clicks("dlrm", model, inputs)


def deepfm(batch: int, rows: int = ROWS, seed: int = 0) -> ModelCase:
    """DeepFM with the paper's widths, without dropout."""
    torch.manual_seed(seed)
    return _clicks("deepfm", DeepFm(rows, 10, (400, 400, 400)), (torch.randint(rows, (batch, FIELDS)),))


def _clicks(name: str, model: nn.Module, inputs: tuple[Tensor, ...]) -> ModelCase:
    clicked = torch.randint(2, (len(inputs[0]),)).float()
    return ModelCase(
        name,
        model.eval(),
        inputs,
        {},
        {},
        lambda out: F.binary_cross_entropy_with_logits(out.float(), clicked.to(out.device)),
    )
