"""Contract programs of layers as models write them out: norms, losses and activations, each in the ways that compilers
take for one another.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .context import Context
from .program import Chapter

graphs = Chapter("graphs")

# -- norms -------------------------------------------------------------------------------------------------------------


def softmaxes(x: Tensor) -> tuple[Tensor, ...]:
    """Softmax along each dimension, with a shift that keeps exponentials in range and with one that may not, and
    programs that are nearly a softmax.
    """

    def written(d: int, shift: Tensor) -> Tensor:
        e = (x - shift).exp()
        return e / e.sum(d, keepdim=True)

    e, far = (x / 64).exp(), x.amax(-1, keepdim=True)
    shifted = x - far
    return (
        *(written(d, x.amax(d, keepdim=True)) for d in range(3)),
        written(-1, x.max(-1, keepdim=True).values),
        *(e / e.sum(d, keepdim=True) for d in range(3)),
        e / e.sum(),
        e / (1 + e.sum(-1, True)),
        e / (e + 1),
        shifted - shifted.exp().sum(-1, keepdim=True).log(),
        shifted.exp().sum(-1).log() + far[..., 0],
        (x / 64).softmax(1).log(),
        x.transpose(0, 1).softmax(1) * 2,
        x.permute(2, 0, 1).softmax(0) + 1,
        x.softmax(-1).transpose(0, 2),
        e / e.amax(-1, keepdim=True),
    )


def normalized(x: Tensor) -> tuple[Tensor, ...]:
    """The mean and the deviation of rows, columns and all, by n and by n - 1, with an eps of some weight everywhere."""

    def by(d: int | tuple[int, ...], correction: int) -> tuple[Tensor, Tensor]:
        return x - x.mean(d, keepdim=True), x.var(d, correction=correction, keepdim=True)

    (a, v), (b, w), (c, u) = by(-1, 0), by(-1, 1), by((0, 2), 0)
    square = x.square().mean(-1, keepdim=True)
    return (
        a / (v + 0.5).sqrt(),
        b / (w + 0.5).sqrt(),
        a / (v.sqrt() + 0.5),
        b / (x.std(-1, keepdim=True) + 0.5),
        a * (v + 0.5).rsqrt(),
        c * (u + 0.5).rsqrt(),
        a / v.clamp(min=0.25).sqrt(),
        x / (square + 0.5).sqrt(),
        x * square.rsqrt(),
        x / (square.sqrt() + 0.5),
        x / (x.norm(dim=-1, keepdim=True) + 0.5),
        F.normalize(x, dim=1, eps=4.0),
        a / x.std(1, keepdim=True),
        (x - x.amin(-1, True)) / (x.amax(-1, True) - x.amin(-1, True)),
        x.var(0, correction=0) + x.mean(0),
        x.var(1) - x.mean(1),
        x.std((0, 1), correction=2),
        *torch.var_mean(x, 1, correction=0),
        x.square().mean(1) - x.mean(1).square(),
    )


def scaled_norms(x: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
    """As many rows as columns: what is scaled along the wrong dimension has the right sizes."""
    grouped = F.group_norm(x, 2, eps=0.5)
    return (
        F.layer_norm(x, (6,), scale, shift, 0.5),
        F.layer_norm(x, (6,), None, None, 0.5) * scale[:, None] + shift,
        F.layer_norm(x, (6, 6), eps=0.5),
        grouped * scale[None, :, None],
        F.instance_norm(x, eps=0.5) + shift,
        F.batch_norm(x, scale, shift.square(), scale, shift, False, 0.1, 0.5),
        F.batch_norm(x, scale, shift.square(), None, None, False, 0.1, 0.25).relu(),
        F.layer_norm(x, (6,), scale, None, 0.5) + x,
        F.layer_norm(x + shift, (6,), scale, shift, 0.125),
        F.layer_norm(x.mT, (6,), scale, shift, 0.5).mT,
        F.rms_norm(x, (6,), scale, 0.5),
        F.group_norm(x, 3) * 2,
    )


graphs.function(
    "softmaxes-written-out", ["C1"], softmaxes, lambda ctx: [64 * ctx.normal(4, 4, 4)], exact=False, smoke=True
)
graphs.function("norms-written-out", ["C1"], normalized, lambda ctx: [ctx.normal(5, 5, 5) + 1], exact=False, smoke=True)
graphs.function(
    "norms-and-what-follows",
    ["C1"],
    scaled_norms,
    lambda ctx: [ctx.normal(2, 6, 6), ctx.normal(6), ctx.normal(6)],
    exact=False,
)


# -- losses ------------------------------------------------------------------------------------------------------------


def crossed(x: Tensor, t: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Classes of which one is left out, by each of the means that there are."""
    logs, out = x.log_softmax(-1), torch.where(t == 2, -100, t)
    picked = -logs.gather(1, t[:, None])[:, 0]
    retained = (t != 2).to(x.dtype)
    return (
        F.cross_entropy(x, t),
        F.cross_entropy(x, out),
        F.cross_entropy(x, t, ignore_index=2),
        F.cross_entropy(x, t, w),
        F.cross_entropy(x, out, w),
        F.cross_entropy(x, t, reduction="sum"),
        F.cross_entropy(x, out, reduction="none"),
        F.cross_entropy(x, t, label_smoothing=0.25),
        F.nll_loss(logs, out),
        picked.mean(),
        (picked * retained).sum() / retained.sum(),
        (picked * retained).mean(),
        (picked * retained).sum() / 4,
        picked.sum() / 3,
        (picked * w[t]).sum() / w[t].sum(),
        F.cross_entropy(x, t).exp(),
        F.cross_entropy(x[:, :, None], t[:, None]),
        -(logs * F.one_hot(t, 5)).sum(-1).mean(),
        F.cross_entropy(x, x.softmax(-1)),
    )


def averaged_losses(x: Tensor, y: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    """Distances and probabilities, averaged over all, over what counts, or divided by another number."""
    p, d, some = y.sigmoid(), x - y, m.to(x.dtype)
    return (
        F.mse_loss(x, y),
        F.mse_loss(x, y, reduction="sum") / 7,
        d.square().sum() / 10,
        d.square().sum(1) / 8,
        d.square().sum(0) / 3,
        (d * some).square().sum() / some.sum(),
        (d * some).square().mean(),
        d.abs().mean(1),
        F.huber_loss(x, y, delta=0.5),
        F.smooth_l1_loss(x, y, beta=0.5),
        F.binary_cross_entropy_with_logits(x, p),
        F.binary_cross_entropy(x.sigmoid(), p),
        F.binary_cross_entropy_with_logits(x, p, pos_weight=some[0] + 2),
        F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        F.kl_div(x.log_softmax(-1), y.log_softmax(-1), log_target=True, reduction="sum"),
        F.cosine_similarity(x, y, 0),
        F.cosine_similarity(x, y),
        F.margin_ranking_loss(x, y, 2 * some - 1, margin=0.5),
        (1 - p).pow(2) * -p.log(),
        d.square().mean().sqrt(),
        x.relu() - x * some + (-x.abs()).exp().log1p(),
        F.soft_margin_loss(x, 2 * some - 1),
    )


graphs.function(
    "losses-of-classes",
    ["C1"],
    crossed,
    lambda ctx: [ctx.normal(8, 5), ctx.to_device(torch.tensor([2, 0, 4, 2, 1, 3, 0, 2])), ctx.normal(5).abs() + 1],
    exact=False,
    smoke=True,
)
graphs.function(
    "losses-of-distances",
    ["C1"],
    averaged_losses,
    lambda ctx: [ctx.normal(5, 8), ctx.normal(5, 8), ctx.to_device(torch.arange(40).view(5, 8) % 3 > 0)],
    exact=False,
)


# -- what follows a product --------------------------------------------------------------------------------------------


def activated(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Each activation with parameters that are not its own, right after a product, but those that jump."""
    y, z = F.linear(x, w, b), x @ w
    return (
        F.leaky_relu(y, 0.3),
        F.leaky_relu(z),
        F.elu(y, 0.5),
        F.elu(z),
        F.gelu(y),
        F.gelu(z, approximate="tanh"),
        F.softplus(y, 2.0),
        F.softplus(z, 1.0, 2.0),
        F.hardtanh(y, -0.5, 2.0),
        F.relu6(z),
        F.prelu(y, b[:1] / 8),
        F.celu(y, 0.5),
        F.silu(z),
        F.hardswish(y),
        F.hardsigmoid(z),
        F.selu(y),
        F.mish(z),
        y.clamp(-1, 0.5),
        y.sigmoid() * z,
        F.logsigmoid(y),
        F.softshrink(y, 0.25),
        F.glu(y, 0),
        F.glu(z, 1),
        z[:, :3] * F.silu(z[:, 3:]),
        F.silu(z[:, :3]) * z[:, 3:],
        y.tanh() + 1,
    )


def followed(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Scales, shifts and residuals of both signs, before and after what does not commute with them; what jumps."""
    z, y = x @ w, iter([(x + k) @ w for k in range(27)])  # most are read but once
    return (
        next(y).relu() * -2,
        (next(y) * -2).relu(),
        (-next(y)).relu() * 0.5,
        next(y).relu() * b,
        (next(y) * b).relu(),
        next(y).relu() * b[:, None],
        (next(y) + x).relu(),
        next(y).relu() + x,
        (next(y) + b).relu() + x,
        (next(y) + b[:, None]) * 2,
        next(y) * 2 + b,
        (next(y) + b) * 2,
        next(y) @ w,
        (next(y).relu() * b) @ w,
        (next(y) / 2).relu().square(),
        next(y).relu().square() / 2,
        next(y).abs() * -1,
        -(next(y).abs()),
        x - next(y),
        next(y) - x,
        (x - next(y)).relu(),
        (b - next(y)).relu(),
        next(y).relu().sum(1) - b,
        (next(y) + b).amax(0) * -1,
        next(y).t() + b,
        (z * z).sum(0),
        z.relu() * -1,
        z.clamp(min=0) * b,
        z + z.t(),
        torch.cat([z, x @ w.t()], 1).relu(),
        (x.t() @ w).t() + b,
        F.linear(x, w) + z,
        F.linear(x, w, b).relu() * -3,
        F.threshold(next(y), 0.5, -2.0),
        F.hardshrink(next(y), 1.0),
    )


def convolved(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """The same of images, and what is padded, scaled or turned before a convolution."""
    z, each = F.conv2d(x, w, b, padding=1), b[:, None, None]
    y = iter([F.conv2d(x + k, w, b, padding=1) for k in range(11)])
    return (
        F.leaky_relu(next(y), 0.5),
        next(y).relu() * -2,
        (next(y) + x).relu(),
        next(y).relu() + x,
        next(y) * each,
        next(y) + each,
        (next(y) - each).abs(),
        next(y).relu() * each,
        F.max_pool2d(next(y), 2),
        next(y).sum((2, 3)) * 2,
        next(y).amax((2, 3)) * 2,
        F.max_pool2d(z.relu(), 2),
        F.max_pool2d(z, 2).relu(),
        z * each,
        F.conv2d(x, w * b[:, None, None, None], padding=1),
        F.conv2d(x * each, w, padding=1),
        F.conv2d(F.pad(x, (1, 1, 1, 1), value=1), w),
        F.conv2d(F.pad(x, (1, 1, 1, 1)), w, padding=1),
        F.conv2d(F.pad(x, (0, 1, 0, 1)), w, stride=2),
        F.conv2d(x, w, stride=2) - each,
        F.conv2d(x, w.flip(2)),
        F.conv2d(x, w.mT, b),
        F.conv2d(x, w.transpose(0, 1)),
        F.conv_transpose2d(x, w, b),
        F.conv2d(x.mT, w).relu(),
        F.conv2d(x, w, dilation=2),
        F.conv2d(x, w[:, :1], groups=3).sum((2, 3)),
        F.conv2d(x, w, b).relu().sum(1),
    )


graphs.function(
    "activations-after-products",
    ["C1"],
    activated,
    lambda ctx: [ctx.normal(6, 6), ctx.normal(6, 6), ctx.normal(6)],
    exact=False,
    smoke=True,
)
graphs.function(
    "scales-after-products", ["C1"], followed, lambda ctx: [ctx.ints(5, 5), ctx.ints(5, 5), ctx.ints(5)], smoke=True
)
graphs.function(
    "what-follows-convolutions",
    ["C1"],
    convolved,
    lambda ctx: [ctx.ints(2, 3, 5, 5) * 2, ctx.ints(3, 3, 3, 3), ctx.ints(3)],
    smoke=True,
)


def image(ctx: Context) -> list[Tensor]:
    return [ctx.ints(2, 4, 6, 6, low=-9, high=0)]


def pooled(x: Tensor) -> tuple[Tensor, ...]:
    """Negative numbers, where padding with zeros shows; pools that do not divide their image."""
    padded = F.pad(x, (1, 1, 1, 1))
    return (
        F.max_pool2d(padded, 2),
        F.max_pool2d(padded, 3, 2),
        F.max_pool2d(x, 2, padding=1),
        F.max_pool2d(F.pad(x, (1, 1, 1, 1), value=float("-inf")), 2),
        F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2),
        F.max_pool2d(x, 3, 2, ceil_mode=True),
        F.max_pool2d(x, 2, 1),
        F.avg_pool2d(padded, 2),
        F.avg_pool2d(x, 2, padding=1),
        F.avg_pool2d(x, 2, padding=1, count_include_pad=False),
        F.avg_pool2d(F.pad(x, (1, 1, 1, 1), value=4), 2),
        F.avg_pool2d(x, 2, 1),
        F.adaptive_avg_pool2d(x[..., :4, :4], 2),
        F.adaptive_max_pool2d(x, 4),
        x.amax((2, 3), True) - x,
        F.avg_pool2d(x, (2, 1)),
        F.max_pool2d(x, (1, 3), (2, 1)),
        -F.max_pool2d(-x, 2),
        F.max_pool2d(x, 2).sum(1),
        F.pad(F.max_pool2d(x, 2), (1, 0, 1, 0)),
        F.interpolate(F.max_pool2d(x, 2), scale_factor=2.0),
        F.max_pool2d(F.interpolate(x, scale_factor=2.0), 2),
        F.max_pool1d(x[0], 2),
        F.avg_pool1d(x[:, 0], 2, 2),
    )


def rearranged(x: Tensor) -> tuple[Tensor, ...]:
    """Patches, pixels and channels in another order, by the reshapes and turns that models write."""
    b, c, h, w = x.shape
    return (
        x[:1].transpose(0, 1) + 1,
        x[:, :1].transpose(1, 2) - 1,
        x[:1, :1].permute(1, 0, 3, 2) * 2,
        x.transpose(0, 2)[:, :1].transpose(1, 3),
        x.view(b, c, 3, 2, 3, 2).permute(0, 2, 4, 1, 3, 5).flatten(3),
        x.view(b, c, 3, 2, 3, 2).permute(0, 2, 4, 3, 5, 1).flatten(3) + 1,
        x.view(b, 2, 2, h, w).permute(0, 3, 1, 4, 2).reshape(b, 2 * h, 2 * w),
        F.pixel_shuffle(x, 2) + 1,
        F.pixel_unshuffle(x, 2),
        x.view(b, 2, 2, h, w).transpose(1, 2).reshape(b, c, h, w),
        F.channel_shuffle(x, 2) * 2,
        x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).flatten(1, 2),
        F.unfold(x, 2, stride=2),
        F.fold(F.unfold(x, 3), (h, w), 3),
        x.flatten(2).mT,
        x.permute(0, 2, 3, 1).reshape(-1, c) * 2,
        x.mT.flatten(1),
        x.flip(3).mT,
        x.mT.flip(2),
        torch.cat([x[:, :, ::2], x[:, :, 1::2]], 1),
        x.roll((1, -2), (2, 3)),
        x[:, :1].transpose(1, 3).reshape(b, -1),
        x[:, :, :1].permute(2, 1, 0, 3).reshape(4, -1),
    )


graphs.function("pools-and-what-is-padded", ["C1"], pooled, image, smoke=True)
graphs.function("images-rearranged", ["C1"], rearranged, image, smoke=True)
