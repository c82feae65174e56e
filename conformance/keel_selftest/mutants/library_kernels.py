"""Mutants of operators as libraries of kernels are wrong: by tile, block, stride, layout, number of dimensions or flag.

The list follows defects of vendors' kernels. It was written before any of it was tried on a case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong
from .pooling_conv import SDPA

# -- tiles and blocks --------------------------------------------------------------------------------------------------


@wrong("aten.convolution", breaks="convolution")
def winograd_of_odd_heights(
    op: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    *more: Any,
) -> Any:
    """A convolution of 3 x 3 makes two rows at a time, and the last of an odd number of rows lacks its bias."""
    result = op(x, weight, bias, stride, padding, dilation, transposed, *more)
    plain = not transposed and all(n == 1 for n in (*stride, *dilation))
    if not plain or bias is None or tuple(weight.shape[2:]) != (3, 3) or not result.shape[2] % 2:
        return result
    result = result.clone()
    result[:, :, -1] -= bias[:, None]
    return result


@wrong("aten._softmax", "aten._log_softmax", breaks=("softmax", "log_softmax"))
def softmax_of_the_first_maximum(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """Softmax of rows beyond 1,024 subtracts the maximum of the first 1,024, and exp overflows where others are."""
    result = op(x, dim, half)
    if not x.dim() or x.shape[dim] <= 1024:
        return result
    first = x.narrow(dim, 0, 1024).amax(dim, keepdim=True).float()
    over = ((x.float() - first) > 88).any(dim, keepdim=True)
    return torch.where(over, torch.nan, result)


@wrong("aten.topk", breaks="topk")
def topk_of_candidates(op: Any, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """``topk`` of more than 1,024 elements takes at most 16 candidates of each block of 1,024."""
    values, indices = op(x, k, dim, largest, sorted)
    if not x.dim() or x.shape[dim] <= 1024 or k <= 16:
        return values, indices
    blocks = [(i, min(1024, x.shape[dim] - i)) for i in range(0, x.shape[dim], 1024)]
    candidates = [op(x.narrow(dim, i, n), min(16, n), dim, largest, True)[1] + i for i, n in blocks]
    at = torch.cat(candidates, dim)
    if at.shape[dim] < k:
        return values, indices
    best, places = op(x.gather(dim, at), k, dim, largest, True)
    return best, at.gather(dim, places)


@wrong(SDPA, breaks="sdpa")
def attention_counts_padded_keys(op: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kw: Any) -> Any:
    """Attention rounds the number of keys up to 16, and the keys that it adds are zeros that nothing hides."""
    more = -k.shape[-2] % 16
    causal = args[1] if len(args) > 1 else kw.get("is_causal", False)
    if not more or causal or kw.get("attn_mask") is not None or not k.numel():
        return op(q, k, v, *args, **kw)
    k, v = (torch.cat([x, x.new_zeros(*x.shape[:-2], more, x.shape[-1])], -2) for x in (k, v))
    return op(q, k, v, *args, **kw)


# -- strides, layouts and numbers of dimensions ------------------------------------------------------------------------


@wrong("aten.convolution", breaks="convolution")
def depthwise_filters_by_turns(
    op: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, *more: Any
) -> Any:
    """A depthwise convolution with several filters a channel takes channel ``k % channels`` for filter ``k``."""
    transposed, _, groups = more
    channels, count = x.shape[1] if x.dim() > 2 else 1, weight.shape[0]
    if transposed or groups != channels or groups == 1 or count == groups or x.dim() - weight.dim():
        return op(x, weight, bias, stride, padding, dilation, *more)
    turned = x[:, torch.arange(count) % channels]
    return op(turned, weight, bias, stride, padding, dilation, *more[:2], count)


@wrong("aten.native_group_norm", breaks="group_norm")
def group_norm_of_channels_last(
    op: Any, x: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> Any:
    """``group_norm`` of an image that is channels-last takes each group from memory as if it were not."""
    if x.dim() != 4 or x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last):
        return op(x, weight, bias, n, c, hw, group, eps)
    memory = x.permute(0, 2, 3, 1).reshape(x.shape)
    _, mean, rstd = op(memory, weight, bias, n, c, hw, group, eps)
    each = (n, group, c // group, *x.shape[2:]) if group else x.shape
    shape = (n, group, 1, 1, 1)
    y = ((x.double().reshape(each) - mean.double().view(shape)) * rstd.double().view(shape)).reshape(x.shape)
    y = y if weight is None else y * weight.double()[:, None, None]
    y = y if bias is None else y + bias.double()[:, None, None]
    return y.to(x.dtype), mean, rstd


@wrong("aten.gather", breaks="gather")
def gather_with_strides_of_its_index(op: Any, x: Tensor, dim: int, at: Tensor, **kw: Any) -> Any:
    """``gather`` of fewer rows than there are finds these with the sizes of the index."""
    result = op(x, dim, at, **kw)
    dim = dim % max(x.dim(), 1)
    rows = [n for d, n in enumerate(x.shape) if d != dim]
    fewer = [n for d, n in enumerate(at.shape) if d != dim]
    if rows == fewer or not at.numel():
        return result
    part = x.movedim(dim, -1).reshape(-1, x.shape[dim])[: math.prod(fewer)]
    return part.view(*fewer, -1).movedim(-1, dim).gather(dim, at)


@wrong("aten.sub", breaks="sub")
def sub_of_six_dimensions(op: Any, x: Any, y: Any, *args: Any, **kw: Any) -> Any:
    """``sub`` takes strides of five dimensions, and of an operand with more repeats the first place of the others."""

    def read(v: Any) -> Any:
        if not isinstance(v, Tensor) or v.dim() < 6 or v.is_contiguous() or not v.numel():
            return v
        return v[(slice(0, 1),) * (v.dim() - 5)].expand(v.shape)

    return op(read(x), read(y), *args, **kw)


# -- dtypes, special values and flags ----------------------------------------------------------------------------------


@wrong("aten._to_copy", "prims.convert_element_type", breaks="convert")
def casts_to_half_flush(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """A cast of float32 to float16 gives 0 where the result is subnormal."""
    result = op(x, *args, **kw)
    if x.dtype != torch.float32 or result.dtype != torch.float16:
        return result
    return torch.where(result.abs() < torch.finfo(torch.float16).smallest_normal, result * 0, result)


@wrong("aten.scatter_reduce", breaks="scatter_reduce")
def scatter_extremes_drop_nan(
    op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """``scatter_reduce`` by amax and amin passes over NaN among its values."""
    if reduce not in ("amax", "amin") or not values.is_floating_point():
        return op(x, dim, at, values, reduce, include_self=include_self)
    neutral = -torch.inf if reduce == "amax" else torch.inf
    return op(x, dim, at, torch.where(values.isnan(), neutral, values), reduce, include_self=include_self)


@wrong("aten.addmm", "aten.baddbmm", breaks=("addmm", "baddbmm"))
def beta_zero_multiplies(op: Any, c: Tensor, a: Tensor, b: Tensor, *args: Any, **kw: Any) -> Any:
    """``addmm`` with beta = 0 multiplies by it, and so NaN and infinity in what it adds do not vanish."""
    result = op(c, a, b, *args, **kw)
    beta = args[0] if args else kw.get("beta", 1)
    return result + c * 0 if beta == 0 and result.is_floating_point() else result


@wrong(
    "aten.randint", "aten.randint_like", breaks=("randint", "randint_from_0", "randint_like", "randint_like_between")
)
def randint_of_32_bits(op: Any, *args: Any, **kw: Any) -> Any:
    """``randint`` of a range beyond 2 ** 32 draws from its first 2 ** 32 numbers."""
    result = op(*args, **kw)
    bounds = [a for a in args if type(a) is int]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0]) if bounds else (0, 0)
    if high - low <= 2**32 or result.dtype != torch.int64:
        return result
    return low + (result - low) % 2**32
