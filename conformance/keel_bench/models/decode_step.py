"""One step of generation: a Llama-style decoder reads one token per row and attends to a static cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel_conformance.models.model_case import ModelCase


@dataclass(frozen=True)
class Sizes:
    """``cache`` is the number of positions that the cache holds."""

    width: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    words: int
    cache: int = 512


SMOLLM_135M = Sizes(576, 30, 9, 3, 1536, 49152)
TINY = Sizes(64, 2, 4, 2, 128, 1000, 32)


class Attention(nn.Module):
    """Attention with grouped heads and rotary positions, and the cache of its keys and values."""

    def __init__(self, sizes: Sizes, batch: int) -> None:
        super().__init__()
        self.sizes, self.head = sizes, sizes.width // sizes.heads
        self.queries = nn.Linear(sizes.width, sizes.width, bias=False)
        self.pairs = nn.Linear(sizes.width, 2 * sizes.key_heads * self.head, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, sizes.key_heads, sizes.cache, self.head))

    def forward(self, x: Tensor, position: Tensor, turn: Tensor, mask: Tensor) -> Tensor:
        batch = x.shape[0]
        query = rotated(self.queries(x).view(batch, 1, self.sizes.heads, self.head).transpose(1, 2), turn)
        key, value = self.pairs(x).view(batch, 1, 2 * self.sizes.key_heads, self.head).transpose(1, 2).chunk(2, 1)
        keys, values = self.get_buffer("keys"), self.get_buffer("values")
        keys.index_copy_(2, position, rotated(key, turn).to(keys.dtype))
        values.index_copy_(2, position, value.to(values.dtype))
        mixed = F.scaled_dot_product_attention(
            query, keys.to(query.dtype), values.to(query.dtype), attn_mask=mask, enable_gqa=True
        )
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, 1, -1))
        return out


def rotated(x: Tensor, turn: Tensor) -> Tensor:
    """``x`` turned by the angles ``turn``, in pairs of elements that are half a head apart."""
    low, high = x.chunk(2, -1)
    return (x * turn.cos() + torch.cat((-high, low), -1) * turn.sin()).to(x.dtype)


class Block(nn.Module):
    """One layer of the decoder: attention to the cache, then the gated MLP."""

    def __init__(self, sizes: Sizes, batch: int) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.RMSNorm(sizes.width), nn.RMSNorm(sizes.width)
        self.attention = Attention(sizes, batch)
        self.gate, self.up = (nn.Linear(sizes.width, sizes.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, x: Tensor, position: Tensor, turn: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), position, turn, mask)
        y = self.before_mlp(x)
        down: Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return x + down


class Decoder(nn.Module):
    """Yields the scores of the next token. A step at the same position can be repeated: it writes the same cells."""

    def __init__(self, sizes: Sizes, batch: int) -> None:
        super().__init__()
        head = sizes.width // sizes.heads
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes, batch) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width)
        self.register_buffer("speeds", 10000.0 ** (-torch.arange(0, head, 2) / head).repeat(2))
        self.register_buffer("positions", torch.arange(sizes.cache))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        turn = position * self.get_buffer("speeds")
        mask = (self.get_buffer("positions") <= position)[None, None, None]
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, position, turn, mask)
        return F.linear(self.norm(x), self.words.weight)


def decode_step(batch: int, sizes: Sizes = SMOLLM_135M, seed: int = 0) -> ModelCase:
    """A step at the middle of a cache that is full of random keys and values."""
    torch.manual_seed(seed)
    model = Decoder(sizes, batch).eval()
    tokens = torch.randint(sizes.words, (batch, 1))
    return ModelCase(
        "decode-step", model, (tokens, torch.tensor([sizes.cache // 2])), {}, {}, lambda out: out.square().mean()
    )
