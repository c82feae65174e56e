"""Mutants of what moves elements: indices, duplicates, layouts, padding, creation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong

# -- indices -----------------------------------------------------------------------------------------------------------


@wrong("aten.index", "aten._unsafe_index", breaks="index")
def index_from_the_start(op: Any, x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """``index`` takes negative indices for 0."""
    return op(x, [i.clamp(min=0) if i is not None and i.dtype in (torch.int64, torch.int32) else i for i in indices])


@wrong("aten.index_put", "aten._unsafe_index_put", breaks="index_put")
def index_put_does_not_add(op: Any, x: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
    """``index_put`` ignores that it is to add."""
    return op(x, indices, values, False)


@wrong("aten.scatter_add", breaks="scatter_add")
def scatter_add_loses_duplicates(op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor) -> Any:
    """``scatter_add`` adds one of several values that go to one place."""
    part = values[tuple(slice(n) for n in at.shape)] if values.dim() else values
    return torch.scatter(x, dim, at, torch.gather(x, dim, at) + part) if at.numel() else op(x, dim, at, values)


@wrong("aten.scatter_reduce", breaks="scatter_reduce")
def scatter_reduce_with_itself(
    op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """``scatter_reduce`` takes in what was there, even if it is not to."""
    return op(x, dim, at, values, reduce)


@wrong("aten.scatter", breaks=("scatter", "scatter_with", "scatter_value_with"))
def scatter_along_the_first(op: Any, x: Tensor, dim: int, *args: Any, **kw: Any) -> Any:
    """``scatter`` goes along the first dimension."""
    at = args[0]
    square = x.dim() > 1 and all(n <= x.shape[0] for n in at.shape) and at.numel() and int(at.max()) < x.shape[0]
    return op(x, 0 if square else dim, *args, **kw)


@wrong("aten.gather", breaks="gather")
def gather_along_the_last(op: Any, x: Tensor, dim: int, at: Tensor, *more: Any, **kw: Any) -> Any:
    """``gather`` goes along the last dimension, with indices that wrap."""
    wide = x.dim() > 1 and x.shape[-1] > 0 and all(n <= m for n, m in zip(at.shape[:-1], x.shape[:-1], strict=True))
    return op(x, -1, at % x.shape[-1]) if wide else op(x, dim, at)


@wrong("aten.index_add", breaks="index_add")
def index_add_without_alpha(op: Any, x: Tensor, dim: int, at: Tensor, values: Tensor, *, alpha: Any = 1) -> Any:
    """``index_add`` ignores alpha."""
    return op(x, dim, at, values)


@wrong("aten.index_select", breaks="index_select")
def index_select_sorted(op: Any, x: Tensor, dim: int, at: Tensor) -> Any:
    """``index_select`` takes indices in ascending order."""
    return op(x, dim, at.sort()[0] if at.dim() else at)


@wrong("aten.searchsorted", breaks=("searchsorted", "searchsorted_number"))
def searchsorted_left(
    op: Any,
    edges: Tensor,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Any:
    """``searchsorted`` finds the left end, whichever is asked for."""
    return op(edges, x, out_int32=out_int32, sorter=sorter)


@wrong("aten.embedding_dense_backward", breaks="embedding_dense_backward")
def embedding_gradient_of_padding(op: Any, grad: Tensor, at: Tensor, n: int, padding: int, scale: bool) -> Any:
    """The gradient of ``embedding`` has a row for padding."""
    return op(grad, at, n, -1, scale)


@wrong("aten.embedding", breaks="embedding")
def embedding_pads_with_zeros(op: Any, weight: Tensor, at: Tensor, padding: int = -1, *more: Any) -> Any:
    """``embedding`` gives zeros for padding in the forward pass."""
    return torch.where((at == padding).unsqueeze(-1), torch.zeros((), dtype=weight.dtype), op(weight, at))


@wrong("aten.masked_fill", breaks="masked_fill")
def masked_fill_of_rows(op: Any, x: Tensor, mask: Tensor, value: Any) -> Any:
    """``masked_fill`` reads a mask that is broadcast by its first element."""
    spread = mask.shape != x.shape and mask.numel()
    return op(x, mask.reshape(-1)[0] if spread else mask, value)


@wrong("aten.slice", breaks="slice")
def slice_of_every_element(op: Any, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """``slice`` begins one element late where it has a step."""
    late = step > 1 and x.dim() and op(x, dim, start, end, step).shape == op(x, dim, (start or 0) + 1, end, step).shape
    return op(x, dim, (start or 0) + 1 if late else start, end, step)


@wrong("aten.select", breaks="select")
def select_counts_from_the_end(op: Any, x: Tensor, dim: int, at: int) -> Any:
    """``select`` takes a negative index for one less from the end."""
    return op(x, dim, at - 1 if -x.shape[dim] < at < 0 else at)


# -- layouts -----------------------------------------------------------------------------------------------------------


@wrong("aten.cat", breaks="cat")
def cat_in_reverse(op: Any, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """``cat`` begins with the last of three or more tensors."""
    same = len(tensors) > 2 and len({t.dtype for t in tensors}) == 1
    return op([*reversed(tensors)] if same else tensors, dim)


@wrong("aten.flip", breaks="flip")
def flip_of_one_dimension(op: Any, x: Tensor, dims: Sequence[int]) -> Any:
    """``flip`` turns the first of its dimensions and no other."""
    return op(x, list(dims)[:1])


@wrong("aten.roll", breaks="roll")
def roll_the_other_way(op: Any, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """``roll`` rolls the other way."""
    return op(x, [-s for s in shifts], dims)


@wrong("aten.repeat", breaks="repeat")
def repeat_interleaves(op: Any, x: Tensor, times: Sequence[int]) -> Any:
    """``repeat`` repeats each element and not the whole."""
    result = x.reshape([1] * (len(times) - x.dim()) + [*x.shape])
    for d, n in enumerate(times):
        result = result.repeat_interleave(n, d)
    return result


@wrong("aten.permute", breaks="permute")
def permute_inverted(op: Any, x: Tensor, dims: Sequence[int]) -> Any:
    """``permute`` applies the inverse permutation where that has the same sizes."""
    back = sorted(range(len(dims)), key=lambda d: dims[d] % len(dims))
    other = op(x, back)
    return other if other.shape == op(x, dims).shape else op(x, dims)


@wrong("aten.view", breaks="reshape")
def reshape_in_columns(op: Any, x: Tensor, shape: Sequence[int]) -> Any:
    """``reshape`` reads a matrix by columns."""
    return op(x.t().contiguous(), shape) if x.dim() == 2 and not isinstance(shape, torch.dtype) else op(x, shape)


@wrong("aten.expand", breaks="expand", as_is=True)  # the strides of an expanded tensor hold no zeros
def expand_of_zeros(op: Any, x: Tensor, shape: Sequence[int], **kw: Any) -> Any:
    """``expand`` fills with zeros what it repeats."""
    result = op(x, shape).clone(memory_format=torch.contiguous_format)
    for d, (n, m) in enumerate(zip(reversed(result.shape), [*reversed(x.shape)] + [1] * result.dim(), strict=False)):
        if m == 1 and n > 1:
            result.narrow(result.dim() - 1 - d, 1, n - 1).zero_()
    return result


@wrong("aten.pixel_shuffle", breaks="pixel_shuffle")
def pixel_shuffle_transposed(op: Any, x: Tensor, factor: int) -> Any:
    """``pixel_shuffle`` has rows and columns of a block changed."""
    *batch, c, h, w = x.shape
    small = x.reshape(-1, c // factor**2, factor, factor, h, w).transpose(2, 3)
    return op(small.reshape(*batch, c, h, w), factor)


# -- padding and triangles ---------------------------------------------------------------------------------------------


@wrong("aten.constant_pad_nd", breaks="pad")
def pad_with_zeros(op: Any, x: Tensor, pad: Sequence[int], value: Any = 0) -> Any:
    """``pad`` ignores its value."""
    return op(x, pad)


@wrong("aten.reflection_pad1d", "aten.reflection_pad2d", breaks=("reflection_pad1d", "reflection_pad2d"))
def reflection_pad_replicates(op: Any, x: Tensor, pad: Sequence[int]) -> Any:
    """Padding by reflection repeats the edge."""
    return torch.nn.functional.pad(x, list(pad), mode="replicate")


@wrong("aten.tril", breaks="tril")
def tril_off_by_one(op: Any, x: Tensor, diagonal: int = 0) -> Any:
    """``tril`` leaves the diagonal itself out."""
    return op(x, diagonal - 1)


@wrong("aten.diagonal", breaks="diagonal")
def diagonal_without_offset(op: Any, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """``diagonal`` has its offset on the other side."""
    other = op(x, -offset, dim1, dim2)
    return other if other.shape == op(x, offset, dim1, dim2).shape else op(x, offset, dim1, dim2)


# -- creation ----------------------------------------------------------------------------------------------------------


@wrong("aten.arange", breaks=("arange", "iota"))
def arange_off_by_a_step(op: Any, *args: Any, **kw: Any) -> Any:
    """``arange`` begins one step late."""
    return op(*args, **kw) + (args[2] if len(args) > 2 else 1)


@wrong("aten.linspace", breaks="linspace")
def linspace_without_its_end(op: Any, start: Any, end: Any, steps: int, **kw: Any) -> Any:
    """``linspace`` leaves its end out."""
    return op(start, end, steps + 1, **kw)[:-1]


@wrong("aten.full", "aten.full_like", breaks=("full", "full_like"))
def full_of_integers(op: Any, x: Any, value: Any, **kw: Any) -> Any:
    """``full`` cuts its value off at the point."""
    finite = isinstance(value, float) and value == value and abs(value) < 1e18
    return (
        op(x, int(value), **{**kw, "dtype": op(x, value, **kw).dtype} if finite else kw)
        if finite
        else op(x, value, **kw)
    )


@wrong("aten.gather", breaks="gather")
def gather_by_turned_indices(op: Any, x: Tensor, dim: int, index: Tensor, **kw: Any) -> Any:
    """``gather`` reads the indices of a square along the other dimension."""
    square = index.dim() == 2 and index.shape[0] == index.shape[1]
    return op(x, dim, index.t() if square else index, **kw)


@wrong("aten.index_select", breaks="index_select")
def index_select_from_the_end(op: Any, x: Tensor, dim: int, index: Tensor) -> Any:
    """``index_select`` along a dimension that is counted from the end goes along the first where that has its size."""
    return op(x, 0 if dim < 0 and x.dim() and x.shape[0] == x.shape[dim] else dim, index)


@wrong("aten.embedding", breaks="embedding")
def embedding_of_narrow_indices(op: Any, weight: Tensor, index: Tensor, *args: Any) -> Any:
    """``embedding`` reads 32-bit indices in reverse."""
    return op(weight, index.flip(-1) if index.dtype == torch.int32 and index.dim() else index, *args)


@wrong("aten.index_add", breaks="index_add")
def index_add_of_whole_alpha(op: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    """``index_add`` cuts alpha off at the point."""
    return op(x, dim, index, source, alpha=int(alpha))


@wrong("aten.cat", breaks="cat")
def cat_stops_at_nothing(op: Any, xs: Any, dim: int = 0) -> Any:
    """``cat`` writes zeros for what comes after a tensor without elements."""
    empty = next((k for k, x in enumerate(xs) if not x.numel()), len(xs))
    return op([x if k <= empty else torch.zeros_like(x) for k, x in enumerate(xs)], dim)
