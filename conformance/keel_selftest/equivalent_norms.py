"""Benign variants of normalizations: formulas that kernels in use compute them by, which round in other places."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .equivalent import floats, replacing
from .mutants.reductions import dims_of
from .rewiring import with_layout_of

LONG = 2048
"""Rows that are longer are left to PyTorch."""


@replacing("aten.var_mean", "aten.var")
def moments_one_after_another(
    op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """Means and variances are moved by one element after another (Welford)."""
    like = op(x, dim, correction=correction, keepdim=keepdim)
    axes = dims_of(x, dim)
    if not floats(x) or not x.dim() or not x.numel():
        return like
    rows = x.permute([*(d for d in range(x.dim()) if d not in axes), *axes]).flatten(x.dim() - len(axes))
    free = rows.shape[-1] - (1 if correction is None else correction)
    if free <= 0 or rows.shape[-1] > LONG:
        return like
    mean, squares = torch.zeros_like(rows[..., 0]), torch.zeros_like(rows[..., 0])
    for k, value in enumerate(rows.unbind(-1), 1):
        deviation = value - mean
        mean = mean + deviation / k
        squares = squares + deviation * (value - mean)
    result = (squares / free, mean)
    if isinstance(like, Tensor):
        return with_layout_of(result[0].reshape(like.shape), like)
    return tuple(with_layout_of(a.reshape(b.shape), b) for a, b in zip(result, like, strict=True))


def shifted(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scale = rstd if weight is None else rstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return x * scale + shift


@replacing("aten.native_layer_norm", "aten.native_group_norm", "aten._native_batch_norm_legit_no_training")
def normalized_by_scale_and_shift(op: Any, x: Tensor, *args: Any) -> Any:
    """Normalizations multiply by one number and add another, which have the mean in them."""
    like = op(x, *args)
    if not floats(x) or not x.numel() or any(isinstance(a, Tensor) and a.dtype != x.dtype for a in args):
        return like
    match str(op).split(".")[1]:
        case "native_layer_norm":
            result = shifted(x, like[1], like[2], args[1], args[2])
        case "native_group_norm":
            weight, bias, n, channels, _, groups, _ = args
            inner = [1, groups, channels // groups, 1]
            parts = x.reshape(n, groups, channels // groups, -1)
            mean, rstd = (s.reshape(n, groups, 1, 1) for s in like[1:])
            result = shifted(parts, mean, rstd, *(None if p is None else p.reshape(inner) for p in (weight, bias)))
        case _:
            weight, bias, mean, var, _, eps = args
            channels = [1, x.shape[1], *[1] * (x.dim() - 2)]
            mean, rstd = mean.reshape(channels), torch.rsqrt(var + eps).reshape(channels)
            result = shifted(x, mean, rstd, *(None if p is None else p.reshape(channels) for p in (weight, bias)))
    return with_layout_of(result.reshape(x.shape), like[0]), *like[1:]


@replacing("aten.native_layer_norm_backward", "aten.native_group_norm_backward")
def slopes_by_sums(op: Any, grad: Tensor, x: Tensor, *args: Any) -> Any:
    """The gradients of weights of normalizations are sums of products with the argument, less the mean's part."""
    like = op(grad, x, *args)
    if (
        not floats(x)
        or like[1] is None
        or not x.numel()
        or any(isinstance(a, Tensor) and a.dtype != x.dtype for a in args)
    ):
        return like
    if "layer" in str(op):
        _, mean, rstd, *_ = args
        outer = list(range(x.dim() - like[1].dim()))
        result = ((grad * x * rstd).sum(outer) - (grad * mean * rstd).sum(outer)) if outer else like[1]
    else:
        mean, rstd, _, n, channels, _, groups, _ = args
        with_x, alone = (t.reshape(n, groups, channels // groups, -1).sum(-1) for t in (grad * x, grad))
        result = ((with_x - alone * mean.reshape(n, groups, 1)) * rstd.reshape(n, groups, 1)).sum(0)
    return like[0], with_layout_of(result.reshape(like[1].shape), like[1]), like[2]
