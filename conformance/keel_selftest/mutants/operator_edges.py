"""Mutants of operators that are right for ordinary values and sizes, and wrong at an edge of their domain.

The list follows bugs that were reported of other backends. It was written before any of it was tried on a case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong

# -- windows and images ------------------------------------------------------------------------------------------------


@wrong("aten.avg_pool2d", breaks="avg_pool2d")
def avg_pool2d_divides_by_whole_windows(
    op: Any,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """``avg_pool2d`` with ceil_mode divides by the whole window where it ends beyond the padding."""
    if ceil_mode and count_include_pad and divisor_override is None:
        divisor_override = kernel[0] * kernel[-1]
    return op(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)


@wrong("aten.max_pool2d_with_indices", breaks="max_pool2d_with_indices")
def max_pool2d_passes_over_nan(op: Any, x: Tensor, *args: Any) -> Any:
    """``max_pool2d`` passes over NaN."""
    return op(torch.where(x.isnan(), -torch.inf, x) if x.is_floating_point() else x, *args)


@wrong("aten.upsample_bicubic2d", breaks="upsample_cubic")
def bicubic_of_another_coefficient(
    op: Any, x: Tensor, size: Sequence[int], align_corners: bool, *scales: float | None
) -> Any:
    """``upsample_bicubic2d`` has the coefficient -0.5 of other frameworks, and not -0.75."""
    if not x.is_floating_point() or not x.numel():
        return op(x, size, align_corners, *scales)
    scales = (*scales, None, None)
    rows = cubic_weights(x.shape[2], size[0], align_corners, scales[0])
    columns = cubic_weights(x.shape[3], size[1], align_corners, scales[1])
    return (rows @ x.double() @ columns.t()).to(x.dtype)


def cubic_weights(size: int, new: int, align_corners: bool, scale: float | None) -> Tensor:
    """The matrix that resamples a row."""
    result = torch.zeros(new, size, dtype=torch.float64)
    aligned = (size - 1) / (new - 1) if new > 1 else 0.0
    step = aligned if align_corners else 1 / scale if scale else size / new
    for i in range(new):
        place = i * step if align_corners else (i + 0.5) * step - 0.5
        first = math.floor(place)
        for k in range(-1, 3):
            result[i, min(max(first + k, 0), size - 1)] += cubic(abs(place - first - k))
    return result


def cubic(distance: float, a: float = -0.5) -> float:
    if distance <= 1:
        return ((a + 2) * distance - (a + 3)) * distance**2 + 1
    return ((distance - 5) * distance + 8) * distance * a - 4 * a if distance < 2 else 0.0


@wrong("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", breaks="upsample_linear")
def linear_to_one_pixel_reads_the_last(
    op: Any, x: Tensor, size: Sequence[int], align_corners: bool, *scales: float | None
) -> Any:
    """Linear resampling to one pixel with aligned corners reads the last pixel and not the first."""
    ones = [d + 2 for d, n in enumerate(size) if n == 1] if align_corners else []
    return op(x.flip(ones) if ones else x, size, align_corners, *scales)


# -- order and counts --------------------------------------------------------------------------------------------------


@wrong("aten.sort", breaks="sort")
def sort_of_bytes_as_signed(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sort`` of uint8 compares int8."""
    if x.dtype != torch.uint8:
        return op(x, *args, **kw)
    values, indices = op(x.view(torch.int8), *args, **kw)
    return values.view(torch.uint8), indices


@wrong("aten.histc", breaks="histc")
def histc_without_its_upper_edge(op: Any, x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """The last bin of ``histc`` does not contain its upper edge."""
    if min == max or not x.numel():
        return op(x, bins, min, max)
    return op(x[x != max], bins, min, max)


@wrong("aten.scatter_reduce", breaks="scatter_reduce")
def scatter_mean_truncates(
    op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """``scatter_reduce`` of integers rounds a mean toward zero and not down."""
    if reduce != "mean" or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        return op(x, dim, at, values, reduce, include_self=include_self)
    total = op(x, dim, at, values, "sum", include_self=include_self)
    first = torch.full_like(x, int(include_self))
    count = op(first, dim, at, torch.ones_like(values), "sum", include_self=True).clamp(min=1)
    return torch.div(total, count, rounding_mode="trunc")


@wrong(
    "aten._embedding_bag", "aten._embedding_bag_forward_only", breaks=("embedding_bag", "embedding_bag_forward_only")
)
def bag_means_count_padding(
    op: Any,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The mean of an embedding bag divides by the number of indices, those of padding included."""
    rest = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    result, *more = op(weight, indices, offsets, *rest)
    if mode != 1 or padding_idx < 0 or not len(indices) or not len(result):
        return (result, *more)
    starts = offsets[: len(result)]
    bag = torch.bucketize(torch.arange(len(indices)), starts.long(), right=True) - 1
    count = torch.bincount(bag, minlength=len(result))
    padding = torch.bincount(bag[indices == padding_idx], minlength=len(result))
    share = (count - padding) / count.clamp(min=1)
    return (result * share[:, None].to(result.dtype), *more)


@wrong(
    "aten._foreach_add",
    "aten._foreach_mul",
    breaks=("foreach_add", "foreach_mul", "contract.graphs"),
    programs=("graphs-lists-*",),
)
def lists_end_at_forty_eight(op: Any, tensors: Sequence[Tensor], *args: Any, **kw: Any) -> Any:
    """One launch serves 48 tensors of a list, and tensors after these stay as they are."""
    results = op(tensors, *args, **kw)
    return [*results[:48], *(x.clone() for x in tensors[48:])]


# -- numbers -----------------------------------------------------------------------------------------------------------


@wrong("aten.bitwise_right_shift", "aten.__rshift__", breaks="shift_right")
def right_shift_masks_its_count(op: Any, x: Any, y: Any) -> Any:
    """``shift_right`` by the width or more shifts by the remainder, as processors do."""
    return op(x, y % (8 * op(x, y).itemsize))


@wrong("aten.remainder", breaks="remainder")
def remainder_by_a_quotient(op: Any, x: Any, y: Any) -> Any:
    """``remainder`` of floats is x - y * floor(x / y)."""
    result = op(x, y)
    if not result.is_floating_point():
        return result
    a, b = (torch.as_tensor(v).to(result.dtype) for v in (x, y))
    return a - b * torch.floor(a / b)


@wrong("aten.abs", breaks="abs")
def abs_of_complex_squares(op: Any, x: Tensor) -> Any:
    """``abs`` of a complex number squares its parts without scaling."""
    return (x.real * x.real + x.imag * x.imag).sqrt() if x.is_complex() else op(x)


@wrong("aten.logcumsumexp", "aten._logcumsumexp", breaks=("logcumsumexp", "logcumsumexp_unchecked"))
def logcumsumexp_of_nothing_is_nan(op: Any, x: Tensor, dim: int) -> Any:
    """``logcumsumexp`` takes the greatest element out, and so is NaN after elements that are all -inf."""
    result = op(x, dim)
    return result if result.is_complex() else torch.where(result == -torch.inf, torch.nan, result)


@wrong("aten.var", "aten.var_mean", "aten.std", breaks=("var", "var_mean", "std"))
def var_divides_by_less_than_nothing(
    op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """Variances divide by a negative number where the correction is larger than the number of elements."""
    result = op(x, dim, correction=correction, keepdim=keepdim)
    dims = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    n = math.prod(x.shape[d] for d in dims) if x.dim() else 1
    by = n - (1 if correction is None else correction)
    if by >= 0:
        return result
    variance = torch.var(x, dim, correction=0, keepdim=keepdim) * (n / by)
    if isinstance(result, Tensor):
        return variance.sqrt() if "std" in str(op) else variance
    return variance, result[1]


# -- layers ------------------------------------------------------------------------------------------------------------


@wrong("aten.native_layer_norm", breaks="layer_norm")
def layer_norm_of_a_rounded_mean(
    op: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """``layer_norm`` of 16-bit floats rounds the mean before it subtracts."""
    result, mean, rstd = op(x, shape, weight, bias, eps)
    if x.itemsize != 2:
        return result, mean, rstd
    centered = (x.float() - mean.to(x.dtype).float()) * rstd.float()
    scaled = centered if weight is None else centered * weight.float()
    return (scaled if bias is None else scaled + bias.float()).to(x.dtype), mean, rstd


@wrong("aten.nll_loss_forward", "aten.nll_loss2d_forward", breaks="nll_loss")
def nll_loss_of_nothing_is_zero(
    op: Any, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> Any:
    """The mean of ``nll_loss`` is 0 and not NaN where all targets are ignored."""
    result, total = op(x, target, weight, reduction, ignore_index)
    return (torch.where(total == 0, 0, result).to(result.dtype) if reduction == 1 else result), total


@wrong("aten._scaled_dot_product_flash_attention_for_cpu", breaks="sdpa")
def attention_masks_with_a_large_number(op: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kw: Any) -> Any:
    """Attention adds -10,000 where the mask is -inf."""
    mask = kw.get("attn_mask")
    return op(q, k, v, *args, **{**kw, "attn_mask": None if mask is None else mask.clamp(min=-10000)})
