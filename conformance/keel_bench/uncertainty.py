"""How far data sheets are off in models: blocks as models are made of them, predicted and timed on every backend.

What a block takes more than predicted on all backends alike decides nothing between them; what is left is the doubt.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from keel import Backend, placement

Block = tuple[Callable[..., Any], tuple[Tensor, ...]]
LEAST, MOST = 0.05, 0.5
"""What doubts are kept within: no sheet is better, and one that is worse still says which of two is faster."""


def predicted(gm: fx.GraphModule, backend: Backend) -> float:
    """Seconds of a graph on one backend, by its data sheet."""
    anything = replace(backend, supports=lambda call: None, last_resort=False)
    claim = placement.place(gm, [anything], price=placement.Pricing(compete=True)).claim
    return 0.0 if claim is None else claim.seconds


def blocks(device: str) -> Iterator[tuple[str, Block]]:
    """Blocks by title, each a function and its arguments, in float32."""

    def made(*shape: int) -> Tensor:
        return (torch.rand(shape, device="cpu") / 16).to(device)  # a device may lack a kernel that draws

    rows, wide = made(512, 768), 3072
    yield "a perceptron", (_perceptron, (rows, made(wide, 768), made(wide), made(768, wide), made(768)))
    heads = made(48, 128, 64)
    yield "attention", (_attention, (heads, heads.clone(), heads.clone()))
    yield "a gate", (_gate, (made(512, 2048), made(512, 2048), made(2048)))
    image, few = made(4, 64, 56, 56), made(4, 16, 56, 56)
    kernels = made(64, 64, 3, 3), made(64, 64, 3, 3)
    yield "a residual block", (_residual, (image, *kernels, made(64), made(64)))
    yield (
        "an inverted block",
        (_inverted, (few, made(96, 16, 1, 1), made(96, 1, 3, 3), made(16, 96, 1, 1), made(96), made(96))),
    )
    yield "a pool", (_pool, (image, made(64), made(64)))


def doubts(
    predicted: Mapping[str, Mapping[str, float]], seconds: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The doubt of each backend's sheet, by what each block was ``predicted`` to take on it, and took."""
    off = {
        name: {title: math.log(seconds[name][title] / took) for title, took in each.items() if took > 0}
        for name, each in predicted.items()
    }
    titles = {title for each in off.values() for title in each}
    common = {title: statistics.fmean(each[title] for each in off.values() if title in each) for title in titles}
    alone = len(off) == 1
    results = {}
    for name, each in off.items():
        mean = statistics.fmean(each.values()) if each else 0.0
        rest = [(value - (mean if alone else common[title])) ** 2 for title, value in each.items()]
        bias = 1.0 if alone else len(off) / (len(off) - 1)
        results[name] = min(max(math.sqrt(statistics.fmean(rest) * bias), LEAST), MOST) if rest else MOST
    return results


def _perceptron(x: Tensor, up: Tensor, b: Tensor, down: Tensor, c: Tensor) -> Tensor:
    return F.layer_norm(x + F.linear(F.gelu(F.linear(x, up, b)), down, c), (x.shape[-1],), c)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(1, 2) / 8.0, -1) @ v


def _gate(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w * F.silu(y) + x


def _norm(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.batch_norm(x, mean, var + 1.0)


def _residual(x: Tensor, v: Tensor, w: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    y = torch.relu(_norm(torch.conv2d(x, v, padding=1), mean, var))
    return torch.relu(_norm(torch.conv2d(y, w, padding=1), mean, var) + x)


def _inverted(x: Tensor, up: Tensor, w: Tensor, down: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    y = F.hardswish(_norm(torch.conv2d(x, up), mean, var))
    y = F.hardswish(_norm(torch.conv2d(y, w, padding=1, groups=len(w)), mean, var))
    return torch.conv2d(y, down) + x


def _pool(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return torch.relu(_norm(torch.max_pool2d(x, 3, 2, 1), mean, var)).mean((2, 3))
