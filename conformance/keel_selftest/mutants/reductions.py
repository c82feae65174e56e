"""Mutants of reductions, scans, sorts and norms: dimensions, identities, tails, ties, accumulation, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong

# -- sums and their like -----------------------------------------------------------------------------------------------


def dims_of(x: Tensor, dim: Any) -> list[int]:
    dims = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    return [d % x.dim() if x.dim() else 0 for d in dims]


@wrong("aten.sum", breaks="sum")
def sum_in_its_own_dtype(op: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **kw: Any) -> Any:
    """``sum`` of 16-bit floats rounds each partial sum to 16 bits."""
    if x.dtype not in (torch.float16, torch.bfloat16) or not x.dim() or not x.numel():
        return op(x, *([] if dim is None else [dim, keepdim]), **kw)
    result = x
    for d in dims_of(x, dim):
        result = folded(result, d)
    return result if keepdim else result.reshape([n for d, n in enumerate(x.shape) if d not in dims_of(x, dim)])


def folded(x: Tensor, dim: int) -> Tensor:
    parts = x.unbind(dim)
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result.unsqueeze(dim)


@wrong("aten.sum", breaks="sum")
def sum_without_tail(op: Any, x: Tensor, dim: Any = None, *more: Any, **kw: Any) -> Any:
    """``sum`` leaves out what comes after the last whole vector of 4."""
    part = x
    for d in dims_of(x, dim) if x.dim() else ():
        n = x.shape[d]
        part = part.narrow(d, 0, n // 4 * 4) if n > 4 else part
    return op(part, *([] if dim is None else [dim]), *more, **kw)


@wrong("aten.sum", breaks="sum", as_is=True)
def sum_of_negative_dim(op: Any, x: Tensor, dim: Any = None, *more: Any, **kw: Any) -> Any:
    """``sum`` takes a negative dimension for the one before it."""
    other = [(d - 1) % x.dim() if d < 0 else d for d in dim] if dim and x.dim() > 1 else dim
    return op(x, *([] if dim is None else [other if len({*(other or ())}) == len(other or ()) else dim]), *more, **kw)


@wrong("aten.mean", breaks="mean")
def mean_over_one_less(op: Any, x: Tensor, dim: Any = None, *more: Any, **kw: Any) -> Any:
    """``mean`` divides by one less than the number of elements."""
    result = op(x, *([] if dim is None else [dim]), *more, **kw)
    n = x.numel() / max(result.numel(), 1)
    return result * (n / (n - 1)) if n > 1 else result


@wrong("aten.mean", breaks="mean", as_is=True)
def mean_without_keepdim(op: Any, x: Tensor, dim: Any = None, keepdim: bool = False, **kw: Any) -> Any:
    """``mean`` ignores keepdim."""
    return op(x, *([] if dim is None else [dim]), **kw)


@wrong("aten.amax", breaks="amax")
def amax_from_zero(op: Any, x: Tensor, *args: Any) -> Any:
    """``amax`` begins with 0."""
    return op(x, *args).clamp(min=0) if x.dtype != torch.bool else op(x, *args)


@wrong("aten.amin", breaks="amin")
def amin_drops_nan(op: Any, x: Tensor, *args: Any) -> Any:
    """``amin`` passes over NaN."""
    return op(torch.where(x.isnan(), torch.inf, x) if x.is_floating_point() else x, *args)


@wrong("aten.argmax", breaks="argmax")
def argmax_of_the_last(op: Any, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """``argmax`` gives the last of equal elements."""
    flat = x.reshape(-1) if dim is None else x
    at = 0 if dim is None else dim
    if not flat.dim() or not flat.numel():
        return op(x, dim, keepdim)
    result = flat.shape[at] - 1 - op(flat.flip(at), at, keepdim and dim is not None)
    return result.reshape(op(x, dim, keepdim).shape)


@wrong("aten.prod", breaks=("prod", "prod_all"))
def prod_of_magnitudes(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``prod`` multiplies magnitudes."""
    return op(x if x.dtype in (torch.bool, torch.uint8) else x.abs(), *args, **kw)


@wrong("aten.all", breaks="all")
def all_passes_over_nan(op: Any, x: Tensor, *args: Any) -> Any:
    """``all`` counts NaN as false."""
    return op(torch.where(x.isnan(), 0, x) if x.is_floating_point() else x, *args)


@wrong("aten.count_nonzero", breaks="count_nonzero")
def count_nonzero_of_positive(op: Any, x: Tensor, *args: Any) -> Any:
    """``count_nonzero`` counts what is positive."""
    return op(x if x.is_complex() or x.dtype == torch.bool else x > 0, *args)


@wrong("aten.nansum", breaks="nansum")
def nansum_with_nan(op: Any, x: Tensor, dim: Any = None, *more: Any, **kw: Any) -> Any:
    """``nansum`` sums NaN, too."""
    return torch.sum(x, dim, *more, **kw) if dim is not None else torch.sum(x, **kw)


@wrong("aten.var", breaks="var")
def var_without_correction(op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, **kw: Any) -> Any:
    """``var`` ignores which correction is asked for."""
    return op(x, dim, correction=0, **kw)


@wrong("aten.var", breaks="var")
def var_cancels(op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """``var`` is the mean of squares less the square of the mean."""
    like = op(x, dim, correction=correction, keepdim=keepdim)
    n = x.numel() / max(like.numel(), 1)
    free = n - (1 if correction is None else correction)
    if not x.dim() or free <= 0 or x.is_complex():
        return like
    axes = dims_of(x, dim)
    mean = x.mean(axes, keepdim=keepdim)
    return (x.square().mean(axes, keepdim=keepdim) - mean.square()) * (n / free)


@wrong("aten.linalg_vector_norm", breaks="linalg_vector_norm")
def norm_of_order_two(op: Any, x: Tensor, ord: Any = 2, *args: Any, **kw: Any) -> Any:
    """``linalg_vector_norm`` ignores its order."""
    return op(x, 2, *args, **kw)


@wrong("aten.logsumexp", breaks="logsumexp")
def logsumexp_overflows(op: Any, x: Tensor, dim: Any, *more: Any) -> Any:
    """``logsumexp`` does not take the maximum out."""
    return torch.log(torch.exp(x).sum(dim, *more))


@wrong("aten._softmax", breaks="softmax")
def softmax_overflows(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """``softmax`` does not take the maximum out."""
    result = torch.exp(x)
    return result / result.sum(dim, keepdim=True)


@wrong("aten._softmax", breaks="softmax")
def softmax_of_the_last(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """``softmax`` goes along the last dimension, whichever is asked for."""
    return op(x, -1, half)


@wrong("aten._log_softmax", breaks="log_softmax")
def log_softmax_of_softmax(op: Any, x: Tensor, dim: int, half: bool) -> Any:
    """``log_softmax`` is log(softmax(x))."""
    return torch.log(torch.softmax(x, dim))


# -- scans -------------------------------------------------------------------------------------------------------------


@wrong("aten.cumsum", breaks="cumsum")
def cumsum_restarts(op: Any, x: Tensor, dim: int, **kw: Any) -> Any:
    """``cumsum`` begins again after every 4 elements."""
    return (
        torch.cat([op(part, dim, **kw) for part in torch.split(x, 4, dim)], dim)
        if x.dim() and x.numel()
        else op(x, dim, **kw)
    )


@wrong("aten.cumsum", breaks="cumsum")
def cumsum_without_its_own(op: Any, x: Tensor, dim: int, **kw: Any) -> Any:
    """``cumsum`` leaves the element itself out."""
    result = op(x, dim, **kw)
    return result - x if x.dtype != torch.bool else result


@wrong("aten.cummax", breaks="cummax")
def cummax_of_the_first(op: Any, x: Tensor, dim: int) -> Any:
    """``cummax`` gives where the greatest element stands first, not last."""
    values, at = op(x, dim)
    if not x.dim() or not x.numel():
        return values, at
    moved = torch.cat(
        [
            torch.ones_like(x.narrow(dim, 0, 1), dtype=torch.bool),
            values.narrow(dim, 1, x.shape[dim] - 1) != values.narrow(dim, 0, x.shape[dim] - 1),
        ],
        dim,
    )
    return values, torch.where(moved, at, 0).cummax(dim)[0]


# -- sorts -------------------------------------------------------------------------------------------------------------


@wrong("aten.sort", breaks="sort")
def sort_unstable(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sort`` that is to be stable gives equal elements in the other order."""
    values, at = op(x, *args, **kw)
    dim = kw.get("dim", args[0] if args and not isinstance(args[0], bool) else -1)
    if not x.dim() or not x.numel():
        return values, at
    dim, down = (dim if isinstance(dim, int) else -1), kw.get("descending", False)
    turned, where = torch.sort(x.flip(dim), dim=dim, descending=down, stable=True)
    return turned, x.shape[dim] - 1 - where


@wrong("aten.sort", breaks="sort")
def sort_nan_first(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sort`` puts NaN before all numbers."""
    _, at = op(torch.where(x.isnan(), -torch.inf, x) if x.is_floating_point() else x, *args, **kw)
    dim = kw.get("dim", args[0] if args and not isinstance(args[0], bool) else -1)
    return (x.gather(dim, at) if x.dim() else x), at


@wrong("aten.topk", breaks="topk")
def topk_of_the_largest(op: Any, x: Tensor, k: int, dim: int = -1, *more: Any) -> Any:
    """``topk`` gives the largest where the smallest are asked for."""
    return op(x, k, dim)


@wrong("aten.topk", breaks="topk")
def topk_in_reverse(op: Any, x: Tensor, k: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> Any:
    """``topk`` that is to be sorted is in reverse."""
    values, at = op(x, k, dim, largest, ordered)
    return (values.flip(dim), at.flip(dim)) if x.dim() and ordered else (values, at)


@wrong("aten.kthvalue", breaks="kthvalue")
def kthvalue_counts_from_zero(op: Any, x: Tensor, k: int, *args: Any) -> Any:
    """``kthvalue`` counts from 0."""
    n = x.shape[args[0] if args else -1] if x.dim() else 1
    return op(x, min(k + 1, n), *args)


@wrong("aten.median", breaks=("median", "median_all"))
def median_upper(op: Any, x: Tensor, *args: Any) -> Any:
    """``median`` of an even number of elements is the upper of the two in the middle."""
    if args or not x.numel() or (x.is_floating_point() and bool(x.isnan().any())):
        return op(x, *args)
    return x.reshape(-1).sort()[0][x.numel() // 2]


# -- norms -------------------------------------------------------------------------------------------------------------


@wrong("aten.native_layer_norm", breaks="layer_norm")
def layer_norm_without_eps(op: Any, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """``layer_norm`` ignores eps."""
    return op(x, shape, weight, bias, 1e-5 if eps != 1e-5 else 1e-2)


@wrong("aten.native_layer_norm", breaks="layer_norm")
def layer_norm_unbiased(op: Any, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """``layer_norm`` divides by the unbiased deviation."""
    value, mean, rstd = op(x, shape, None, None, eps)
    n = 1
    for size in shape:
        n *= size
    value = value * ((n - 1) / n) ** 0.5 if n > 1 else value
    value = value if weight is None else value * weight
    return (value if bias is None else value + bias), mean, rstd


@wrong(
    "aten._native_batch_norm_legit_functional",
    breaks=("batch_norm_functional", "contract.buffers.C1"),
    programs=("buffers-*",),
)
def batch_norm_biased_statistics(
    op: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> Any:
    """Batch norm updates the running variance by the biased one."""
    result = op(x, weight, bias, mean, var, training, momentum, eps)
    if not training or not x.numel():
        return result
    axes = [d for d in range(x.dim()) if d != 1]
    wrong = (1 - momentum) * var + momentum * x.var(axes, correction=0)
    return (*result[:4], wrong)


@wrong("aten.native_group_norm", breaks="group_norm")
def group_norm_of_one_group(
    op: Any, x: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> Any:
    """``group_norm`` normalizes over all channels."""
    value, _, _ = op(x, weight, bias, n, c, hw, 1, eps)
    return (value, *op(x, weight, bias, n, c, hw, group, eps)[1:])


@wrong("aten.sum", breaks="sum")
def last_but_one_is_the_first(op: Any, x: Tensor, dim: Any = None, *more: Any, **kw: Any) -> Any:
    """``sum`` along the last dimension but one goes along the first where that has its size."""
    dims = list(dim) if isinstance(dim, list | tuple) else []
    if dims in ([-2], [-3]) and x.dim() >= -dims[0] and x.shape[0] == x.shape[dims[0]]:
        other = -1 if dims == [-2] and x.dim() == 2 and x.shape[0] == x.shape[1] else 0
        return op(x, [other], *more, **kw).reshape(op(x, dim, *more, **kw).shape)
    return op(x, *([] if dim is None else [dim]), *more, **kw)


@wrong("aten.any", breaks="any")
def any_passes_over_nan(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``any`` takes NaN for false."""
    return op(torch.nan_to_num(x, 0.0) if x.is_floating_point() else x, *args, **kw)


@wrong("aten.sort", breaks="sort")
def sort_from_the_end_ascends(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sort`` along a dimension that is counted from the end always ascends."""
    if kw.get("dim", 0) < 0:
        kw = {**kw, "descending": False}
    if len(args) > 1 and type(args[0]) is int and args[0] < 0:
        args = (args[0], False, *args[2:])
    return op(x, *args, **kw)
