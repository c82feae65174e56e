"""Contract programs about what compilers fuse into a product: biases, activations, casts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .program import Chapter

graphs = Chapter("graphs")


def products(a: Tensor, b: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Square, so that a bias of the wrong axis, or a factor that is turned, has the sizes of the right one."""
    c = a @ b
    d = b @ a
    return (
        (a @ b.t()).relu(),
        c + bias,
        c.relu() + d,
        (a.t() @ b + bias).relu(),
        -(b @ b),
        d + bias[:, None],
        (c + bias).sum(0),
        F.linear(a, b, bias),
        torch.addmm(bias, a, b, beta=2, alpha=3).abs(),
    )


def reduced(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        -x.sum(0),
        x.sum(1).relu(),
        x - x.amax(1, keepdim=True),
        x.amax(1, keepdim=True) - x,
        y - x.amax(0),
        x.amin(0) - y,
        (x - x.amin(0)).sum(1),
        x.sum(0).abs() - y,
        -(x.amax(0) + y),
        x.sum(0) * y - x.amax(0),
    )


graphs.function(
    "products-and-epilogues", ["C1"], products, lambda ctx: [ctx.ints(5, 5), ctx.ints(5, 5), ctx.ints(5)], smoke=True
)
graphs.function(
    "products-used-twice",
    ["C1"],
    lambda a, b, bias: (
        (c := a @ b).relu() - c,
        (c + bias).relu() + c,
        (c.t() + bias) @ a,
        torch.mm(a, b.t()) + bias,
        (a @ a).sum(0) - bias,
        (b @ a).amax(1) - bias,
    ),
    lambda ctx: [ctx.ints(7, 7), ctx.ints(7, 7), ctx.ints(7)],
)
graphs.function(
    "products-of-batches-and-epilogues",
    ["C1"],
    lambda a, b, bias: (
        (a @ b).relu(),
        a @ b + bias,
        (a @ b.transpose(1, 2) - bias).sum(0),
        -(a @ b[0]),
        torch.baddbmm(bias.expand(3, 4, 4), a, b).relu(),
    ),
    lambda ctx: [ctx.ints(3, 4, 4), ctx.ints(3, 4, 4), ctx.ints(4)],
)
graphs.function(
    "convolutions-and-epilogues",
    ["C1"],
    lambda x, w, bias: (
        F.conv2d(x, w, bias, padding=1).relu(),
        F.conv2d(x, w) * 2 + 1,
        -F.conv2d(x, w, bias, stride=2),
        F.conv2d(x, w, padding=1) + x[:, :1],
        F.conv2d(x, w.transpose(2, 3), bias),
    ),
    lambda ctx: [ctx.ints(2, 3, 6, 6), ctx.ints(3, 3, 3, 3), ctx.ints(3)],
)
graphs.function("reductions-and-epilogues", ["C1"], reduced, lambda ctx: [ctx.ints(6, 9), ctx.ints(9)], smoke=True)
