"""A decoder in the style of Llama, with its loss, and the batches that it is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPSILON = 1e-5
THETA = 10_000.0
"""The base of rotary frequencies."""
BATCHES = 5
"""Batches that training repeats, so that losses fall."""
SEED = 0


@dataclass(frozen=True)
class Sizes:
    """The decoder's ``width`` of a token and its ``hidden`` features in each block; and how it is trained: on ``rows``
    of ``tokens`` in each process, for ``steps`` steps, with buckets of ``bucket_mb`` MB of gradients under DDP.
    """

    width: int
    hidden: int
    heads: int
    blocks: int
    vocabulary: int
    tokens: int
    rows: int
    steps: int = 50
    bucket_mb: float = 128.0


SIZES: Mapping[tuple[str, str], Sizes] = {
    ("line", "cuda"): Sizes(1536, 4096, 12, 8, 32_000, 1024, 4),
    ("line", "cpu"): Sizes(256, 640, 4, 4, 2048, 64, 4, bucket_mb=4.0),
    ("tiny", "cuda"): Sizes(64, 128, 4, 2, 4096, 32, 2, 12, bucket_mb=1.0),
    ("tiny", "cpu"): Sizes(64, 128, 4, 2, 4096, 32, 2, 12, bucket_mb=1.0),
}
"""By scale and kind of device. At the scale "line" the decoder has 325 million parameters on a GPU, 4 million on a CPU.
"""


class Norm(nn.Module):
    """Divides each token by its root mean square."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self.weight
        return result


class Attention(nn.Module):
    """Causal attention with rotary positions. Processes that share it have some of its heads each."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.each = sizes.width // sizes.heads
        self.query, self.key, self.value, self.out = (nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        rows, tokens = x.shape[:2]
        q, k, v = (f(x).view(rows, tokens, -1, self.each).transpose(1, 2) for f in (self.query, self.key, self.value))
        q, k = (rotated(t, cosine, sine) for t in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(rows, tokens, -1))
        return result


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """``x`` (rows, heads, tokens, each) turned by the angles (tokens, each / 2), in the dtype of ``x``."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


class Perceptron(nn.Module):
    """Hidden features, each with a gate. Processes that share it have some of the features each."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gate, self.up = (nn.Linear(sizes.width, sizes.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    """Attention and a perceptron, behind norms. The result has the shape of ``x`` (rows, tokens, width)."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.first, self.attention = Norm(sizes.width), Attention(sizes)
        self.second, self.perceptron = Norm(sizes.width), Perceptron(sizes)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.first(x), cosine, sine)
        result: Tensor = x + self.perceptron(self.second(x))
        return result


class Head(nn.Module):
    """Gives the mean loss of the next tokens ``targets`` (rows, tokens) after ``x`` (rows, tokens, width)."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.norm, self.logits = Norm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = self.logits(self.norm(x))
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(exact.flatten(0, 1), targets.flatten())


class Decoder(nn.Module):
    """Tokens and their next tokens (rows, tokens) give the loss, a scalar."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.head = Head(sizes)
        half = sizes.width // sizes.heads // 2
        angles = torch.outer(torch.arange(sizes.tokens).double(), THETA ** -(torch.arange(half).double() / half))
        for name, table in (("cosine", angles.cos()), ("sine", angles.sin())):
            self.register_buffer(name, table.float(), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        result: Tensor = self.head(x, targets)
        return result


def decoder(sizes: Sizes, device: str, dtype: torch.dtype = torch.float32) -> Decoder:
    """The same weights in every process with such a device, and in every dtype. The device draws them in float32."""
    torch.manual_seed(SEED)
    with torch.device(device):
        model = Decoder(sizes)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model.to(dtype)


def batch(sizes: Sizes, step: int, processes: int) -> tuple[Tensor, Tensor]:
    """Tokens and next tokens of a step, for all processes together (processes * rows, tokens)."""
    draw = torch.Generator().manual_seed(SEED + 1 + step % BATCHES)
    drawn = torch.randint(sizes.vocabulary, (processes * sizes.rows, sizes.tokens + 1), generator=draw)
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
