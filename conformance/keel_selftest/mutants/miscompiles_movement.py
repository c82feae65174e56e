"""Mutants after bugs of real compilers, as ``lowered`` has, of what moves elements, contracts, and slides windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong

# -- places ------------------------------------------------------------------------------------------------------------


@wrong("aten.index", "aten._unsafe_index", breaks="index")
def index_apart_in_place(op: Any, x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Indices with a whole dimension between them put what they broadcast to last and not first."""
    at = [k for k, i in enumerate(indices) if i is not None]
    result = op(x, indices)
    masks = any(i is not None and i.dtype == torch.bool for i in indices)
    if masks or len(at) <= 1 or at[-1] - at[0] < len(at):
        return result
    other = result.movedim(0, -1)
    return other if other.shape == result.shape else other.reshape(result.shape)


@wrong("aten.scatter_reduce", breaks="scatter_reduce")
def scatter_reduce_mean_sums(op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, reduce: str, **kw: Any) -> Any:
    """``scatter_reduce`` that is to take the mean takes the sum."""
    return op(x, dim, at, values, "sum" if reduce == "mean" else reduce, **kw)


@wrong("aten.index_add", breaks="index_add")
def index_add_loses_duplicates(op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, *, alpha: Any = 1) -> Any:
    """``index_add`` adds one of several values that go to one place."""
    if not at.dim() or not x.dim() or not at.numel():
        return op(x, dim, at, values, alpha=alpha)
    return torch.index_copy(x, dim, at, x.index_select(dim, at) + (values * alpha).to(x.dtype))


@wrong("aten.embedding_dense_backward", breaks="embedding_dense_backward")
def embedding_gradient_unscaled(op: Any, grad: Tensor, at: Tensor, n: int, padding: int, scale: bool) -> Any:
    """The gradient of ``embedding`` is not scaled by how often an index stands there."""
    return op(grad, at, n, padding, False)


@wrong("aten.cat", breaks="cat", as_is=True)
def cat_of_the_first_dtype(op: Any, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """``cat`` of several dtypes gives the first one's."""
    return op(tensors, dim).to(tensors[0].dtype)


@wrong("aten.cat", breaks="cat", as_is=True)
def cat_of_a_negative_dim(op: Any, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """``cat`` takes a dimension that is counted from the end for the first."""
    try:
        return op(tensors, 0 if dim < 0 else dim)
    except RuntimeError:
        return op(tensors, dim) * 0


@wrong("aten.constant_pad_nd", breaks="pad", as_is=True)
def pad_from_the_first(op: Any, x: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """``pad`` counts its pairs from the first dimension."""
    pairs = [tuple(pad[k : k + 2]) for k in range(0, len(pad), 2)]
    other = [*reversed([*pairs, *[(0, 0)] * (x.dim() - len(pairs))])]
    try:
        return op(x, [n for pair in other for n in pair], value)
    except RuntimeError:
        return op(x, pad, value)


@wrong("aten.constant_pad_nd", breaks="pad")
def pad_never_cuts(op: Any, x: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """``pad`` by less than nothing fills with its value what it should have cut and shifted."""
    result = op(x, pad, value)
    return torch.full_like(result, value) if min(pad, default=0) < 0 else result


@wrong("aten.roll", breaks="roll")
def roll_of_the_first_dimension(op: Any, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """``roll`` without dimensions rolls the first one, and of several the first alone."""
    if not x.dim():
        return op(x, shifts, dims)
    return op(x, list(shifts)[:1], list(dims)[:1] or [0])


@wrong("aten.arange", breaks=("arange", "iota"))
def arange_of_floats(op: Any, *args: Any, **kw: Any) -> Any:
    """``arange`` of integers counts in float32."""
    result = op(*args, **kw)
    if result.is_floating_point() or not result.numel():
        return result
    start, step = (args[0], args[2] if len(args) > 2 else 1) if len(args) > 1 else (0, 1)
    return (torch.arange(len(result), dtype=torch.float32) * step + start).to(result.dtype)


@wrong("aten.as_strided", breaks="as_strided")
def as_strided_from_the_start(op: Any, x: Tensor, size: Any, stride: Any, offset: int | None = None) -> Any:
    """``as_strided`` ignores its offset."""
    return op(x, size, stride, 0)


@wrong("aten.slice", breaks="slice")
def slice_from_a_negative_start(
    op: Any, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """``slice`` takes a start that is counted from the end for 0, of as many elements."""
    like = op(x, dim, start, end, step)
    late = isinstance(start, int) and start < 0 and like.numel()
    return op(x, dim, 0, (like.shape[dim] - 1) * step + 1, step) if late else like


@wrong("aten.unfold", breaks="sliding_window")
def unfold_of_step_one(op: Any, x: Tensor, dim: int, size: int, step: int) -> Any:
    """``unfold`` moves on by one element, whatever its step."""
    like = op(x, dim, size, step)
    return op(x, dim, size, 1).narrow(dim % x.dim(), 0, like.shape[dim]) if x.dim() else like


@wrong("aten.nonzero", breaks="nonzero")
def nonzero_by_columns(op: Any, x: Tensor) -> Any:
    """``nonzero`` counts the first dimension fastest."""
    result = op(x)
    order = torch.arange(len(result))
    for d in range(result.shape[1]):
        order = order[result[order, d].sort(stable=True)[1]]
    return result[order]


@wrong("aten.diag_embed", breaks="diag_embed")
def diag_embed_without_offset(op: Any, x: Tensor, offset: int = 0, *more: Any) -> Any:
    """``diag_embed`` has its offset on the other side."""
    return op(x, -offset, *more)


@wrong("aten.bucketize", breaks=("bucketize", "bucketize_number"))
def bucketize_left(op: Any, x: Any, edges: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    """``bucketize`` ignores ``right``."""
    return op(x, edges, out_int32=out_int32)


@wrong("aten.split_with_sizes", breaks="split_with_sizes", as_is=True)
def split_in_reverse(op: Any, x: Tensor, sizes: Sequence[int], dim: int = 0) -> Any:
    """``split_with_sizes`` cuts from the end."""
    return [*reversed(op(x, [*reversed(sizes)], dim))]


# -- products ----------------------------------------------------------------------------------------------------------


@wrong("aten.mm", "aten.bmm", breaks=("mm", "bmm"))
def products_skip_zeros(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """``mm`` and ``bmm`` skip zeros of the first operand, so that 0 * inf is 0."""
    result = op(a, b, *more)
    if not a.is_floating_point() or bool(b.isfinite().all()) or not bool((a == 0).any()):
        return result
    parts = torch.where(a.unsqueeze(-1) == 0, torch.zeros((), dtype=a.dtype), a.unsqueeze(-1) * b.unsqueeze(-3))
    return parts.sum(-2).to(result.dtype)


@wrong("aten.addmm", "aten.baddbmm", breaks=("addmm", "baddbmm"))
def what_is_ignored_is_read(op: Any, c: Tensor, a: Tensor, b: Tensor, *more: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """``addmm`` and ``baddbmm`` multiply by a beta of 0 what they are to ignore."""
    if beta or not c.is_floating_point():
        return op(c, a, b, *more, beta=beta, alpha=alpha)
    return op(c, a, b, *more, beta=beta, alpha=alpha) + c * 0


@wrong("aten.mm", breaks="mm")
def mm_of_integers_by_floats(op: Any, a: Tensor, b: Tensor, *more: Any) -> Any:
    """``mm`` of integers goes by float32."""
    if a.is_floating_point() or a.is_complex():
        return op(a, b, *more)
    return op(a.float(), b.float()).nan_to_num().clamp(-(2.0**63), 2.0**62).to(torch.int64).to(a.dtype)


@wrong("aten._cdist_forward", breaks="cdist")
def cdist_of_order_two(op: Any, x: Tensor, y: Tensor, p: float, mode: Any = None) -> Any:
    """``cdist`` ignores its order."""
    return op(x, y, 2.0, mode)


@wrong("aten.linalg_cross", breaks="linalg_cross")
def cross_of_the_last(op: Any, x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """``linalg_cross`` goes along the last dimension where that has 3 elements."""
    like = op(x, y, dim=dim)
    return op(x, y, dim=-1) if like.shape[-1] == 3 else -like if dim not in (-1, like.dim() - 1) else like


@wrong("aten._fft_r2c", breaks="fft_r2c")
def fft_never_normalized(op: Any, x: Tensor, dim: Any, normalization: int, onesided: bool) -> Any:
    """``fft_r2c`` ignores its ``normalization``."""
    return op(x, dim, 0, onesided)


@wrong("aten.linalg_cholesky_ex", breaks="cholesky")
def cholesky_always_lower(op: Any, x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """``cholesky`` ignores that the upper factor is asked for."""
    return op(x, check_errors=check_errors)


@wrong("aten.linalg_solve_triangular", breaks="triangular_solve")
def triangular_solve_of_its_diagonal(
    op: Any, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """``linalg_solve_triangular`` reads a diagonal that is to be taken for ones."""
    return op(a, b, upper=upper, left=left)


# -- windows -----------------------------------------------------------------------------------------------------------


@wrong("aten.convolution", breaks="convolution", as_is=True)
def convolution_of_equal_strides(
    op: Any, x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, *more: Any
) -> Any:
    """``convolution`` has the first stride, padding and dilation in all dimensions."""
    try:
        return op(x, w, bias, *([v[0]] * len(v) for v in (stride, padding, dilation)), *more)
    except RuntimeError:
        return op(x, w, bias, stride, padding, dilation, *more) * 0


@wrong("aten.convolution", breaks="convolution", as_is=True)
def convolution_without_output_padding(op: Any, *args: Any) -> Any:
    """A transposed ``convolution`` ignores its output padding."""
    *others, padding, groups = args
    return op(*others, [0] * len(padding), groups)


@wrong("aten.convolution", breaks="convolution")
def convolution_of_groups_without_bias(op: Any, x: Tensor, w: Tensor, bias: Any, *more: Any) -> Any:
    """``convolution`` of several groups forgets its bias."""
    return op(x, w, None if more[-1] > 1 else bias, *more)


@wrong("aten.max_pool2d_with_indices", "aten.avg_pool2d", breaks=("max_pool2d_with_indices", "avg_pool2d"), as_is=True)
def pools_of_square_windows(op: Any, x: Tensor, size: Any, stride: Any = (), padding: Any = 0, *more: Any) -> Any:
    """Pools have square windows with the last of two sizes, and of two strides."""

    def square(v: Any) -> Any:
        return [v[-1]] * 2 if isinstance(v, list | tuple) and len(v) == 2 else v

    try:
        return op(x, square(size), square(stride), padding, *more)
    except RuntimeError:
        return op(x, size, stride, padding, *more)


@wrong("aten.max_pool2d_with_indices", breaks="max_pool2d_with_indices")
def max_pool_indices_of_the_window(op: Any, x: Tensor, *args: Any) -> Any:
    """``max_pool2d`` counts places by columns."""
    value, at = op(x, *args)
    h, w = x.shape[-2:]
    return value, at % w * h + at // w


@wrong("aten.avg_pool2d", breaks="avg_pool2d")
def avg_pool_without_divisor(op: Any, *args: Any) -> Any:
    """``avg_pool2d`` ignores the divisor that is given."""
    return op(*args[:6])


@wrong("aten._adaptive_avg_pool2d", breaks="adaptive_avg_pool2d")
def adaptive_windows_of_one_size(op: Any, x: Tensor, size: Sequence[int]) -> Any:
    """Adaptive pools have windows of one size, as if sizes were multiples."""
    h, w = (max(n // m, 1) for n, m in zip(x.shape[-2:], size, strict=True))
    if not x.numel() or x.shape[-2] < size[0] or x.shape[-1] < size[1]:
        return op(x, size)
    result = torch.nn.functional.avg_pool2d(x, (h, w), (h, w))
    return result[..., : size[0], : size[1]]


@wrong("aten.upsample_bilinear2d", breaks="upsample_linear")
def linear_without_scales(op: Any, x: Tensor, size: Any, align: bool, *scales: Any) -> Any:
    """``upsample_bilinear2d`` goes by sizes where scales are given."""
    return op(x, size, align)


@wrong("aten.grid_sampler_2d", breaks="grid_sampler")
def grid_sampler_always_linear(op: Any, x: Tensor, grid: Tensor, mode: int, *more: Any) -> Any:
    """``grid_sampler`` interpolates linearly, whatever is asked for."""
    return op(x, grid, 0, *more)


# -- norms, losses, attention ------------------------------------------------------------------------------------------


@wrong("aten.native_layer_norm", breaks="layer_norm")
def layer_norm_gives_variance(op: Any, *args: Any) -> Any:
    """``layer_norm`` gives the deviation and not its inverse beside its result."""
    value, mean, rstd = op(*args)
    return value, mean, 1 / rstd


@wrong("aten.native_layer_norm", "aten.native_group_norm", breaks=("layer_norm", "group_norm"))
def norms_need_a_weight(op: Any, x: Tensor, *args: Any) -> Any:
    """Norms without a weight forget their bias."""
    more = list(args)
    at = 1 if "layer" in str(op) else 0
    more[at + 1] = more[at + 1] if more[at] is not None else None
    return op(x, *more)


@wrong(
    "aten._native_batch_norm_legit_no_training",
    "aten._native_batch_norm_legit_functional",
    breaks=("batch_norm_no_training", "batch_norm_functional"),
)
def batch_norm_always_trains(op: Any, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *more: Any) -> Any:
    """Batch norm goes by the batch's statistics in evaluation, too."""
    like = op(x, weight, bias, mean, var, *more)
    if x.numel() < 2 or (len(more) == 3 and more[0]):
        return like
    result = torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, bias, True, more[-2], more[-1])
    return (result[0], *like[1:])


@wrong("aten.smooth_l1_loss", breaks="smooth_l1_loss")
def smooth_l1_of_beta_one(op: Any, x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Any:
    """``smooth_l1_loss`` ignores beta."""
    return op(x, y, reduction)


@wrong("aten.binary_cross_entropy_with_logits", breaks="binary_cross_entropy_with_logits")
def cross_entropy_without_positive_weight(
    op: Any, x: Tensor, y: Tensor, weight: Any = None, positive: Any = None, reduction: int = 1
) -> Any:
    """``binary_cross_entropy_with_logits`` ignores the weight of positive targets."""
    return op(x, y, weight, None, reduction)


@wrong("aten.nll_loss_forward", breaks="nll_loss")
def nll_loss_without_weight(op: Any, x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Any:
    """``nll_loss`` ignores the weights of classes."""
    return op(x, target, None, reduction, ignore)


@wrong("aten._scaled_dot_product_flash_attention_for_cpu", breaks="sdpa")
def attention_without_mask(op: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kw: Any) -> Any:
    """Attention ignores a mask that is added."""
    return op(q, k, v, *args, **{**kw, "attn_mask": None})


@wrong("aten._scaled_dot_product_flash_attention_for_cpu_backward", breaks="sdpa_backward")
def attention_gradients_swapped(op: Any, *args: Any, **kw: Any) -> Any:
    """The gradient of attention has those of queries and keys changed where they have the same sizes."""
    q, k, v = op(*args, **kw)
    return (k, q, v) if q.shape == k.shape else (q * 2, k, v)


@wrong("aten.native_dropout", breaks=("native_dropout", "contract.random"), programs=("random-*",), as_is=True)
def dropout_does_not_scale(op: Any, x: Tensor, p: float, train: bool | None = True) -> Any:
    """``native_dropout`` does not scale what it keeps."""
    value, mask = op(x, p, train)
    return (value * (1 - p) if train else value), mask
