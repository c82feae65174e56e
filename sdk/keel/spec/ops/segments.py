"""Reductions of runs of rows: segments of a tensor, bags of an embedding table, and their gradients.

What the forward of ``embedding_bag`` saves is part of its meaning: which bag each index is in, how many count in each,
and with maximum which row each element came from. On a CPU the sum saves nothing in the case that its gradient does not
need (float32 and float16 rows in order, no padding), and zeros for what does not matter; so do these decompositions.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import UNORDERED, Family, Places
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import EVERY_DEVICE, CudaKernel
from keel.spec.rules import ShapeRule

aten = torch.ops.aten
family = Family("segments")
Tensor = torch.Tensor

TAGS = frozenset({"indexing", "reduction"})
_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCE = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


class _Segments:
    """Which segment each element along the axis is in, and how to read and reduce by it."""

    def __init__(self, data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int):
        if offsets is not None:
            n = offsets.shape[axis]
            lengths = aten.slice.Tensor(offsets, axis, 1) - aten.slice.Tensor(offsets, axis, 0, n - 1)
        assert lengths is not None
        self.data, self.axis, self.lengths = data, axis, lengths
        self.count = lengths.shape[axis]
        ends = aten.cumsum.default(lengths, axis)
        places = aten.arange.default(data.shape[axis], dtype=ends.dtype, device=data.device)
        places = aten.expand.default(places, [*ends.shape[:-1], data.shape[axis]]).contiguous()
        number = aten.searchsorted.Tensor(ends, places, right=True)
        self.of = self._spread(number, list(data.shape))

    def _spread(self, x: Tensor, shape: list[Any]) -> Tensor:
        more = [1] * (self.data.dim() - x.dim())
        result: Tensor = aten.expand.default(aten.reshape.default(x, [*x.shape, *more]), shape)
        return result

    def reduced(self, src: Tensor, how: str, start: float) -> Tensor:
        """One element per segment; what is in none goes to a place of its own."""
        shape = [self.count + 1 if d == self.axis else n for d, n in enumerate(self.data.shape)]
        base = aten.full.default(shape, start, dtype=src.dtype, device=src.device)
        result: Tensor = aten.slice.Tensor(
            aten.scatter_reduce.two(base, self.axis, self.of, src, how), self.axis, 0, self.count
        )
        return result

    def read(self, x: Tensor) -> Tensor:
        """For each element of the data, what its segment has; 0 for what is in none."""
        pad = [0, 0] * (x.dim() - 1 - self.axis) + [0, 1]
        result: Tensor = aten.gather.default(aten.constant_pad_nd.default(x, pad), self.axis, self.of)
        return result

    def sizes(self, shape: list[Any], dtype: torch.dtype) -> Tensor:
        return self._spread(self.lengths, shape).to(dtype)


@family(
    "segment_reduce.default",
    tags=TAGS | UNORDERED,
    clauses=(
        Clause(
            "reduce is sum, mean, prod, max or min; initial, where given, takes part, once.", parameters=("reduce",)
        ),
        Clause(
            "An empty segment gives initial, or the neutral element (0, 1, an infinity); its mean without initial "
            "is NaN.",
            About.EMPTY,
        ),
        "Segments lie one after the other; lengths or offsets may differ from row to row.",
        Clause("NaN gives NaN.", About.NONFINITE),
        Clause("The order of the reduction is not specified.", About.UNSPECIFIED),
    ),
)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
    **_: Any,
) -> Tensor:
    """Segments along an axis, reduced to one element each."""
    if lengths is None and offsets is None:
        return NotImplemented
    by = _Segments(data, lengths, offsets, axis % data.dim())
    out = by.reduced(accurate(data), _REDUCE[reduce], _START[reduce] if initial is None else float(initial))
    if reduce == "mean":
        sizes = by.sizes(list(out.shape), out.dtype)
        empty = out if initial is not None else aten.full_like.default(out, math.nan)
        out = aten.where.self(aten.gt.Scalar(sizes, 0), out / sizes, empty)
    return out.to(data.dtype)


@family(
    "_segment_reduce_backward.default",
    tags=TAGS | UNORDERED,
    clauses=(
        "It is the gradient of segment_reduce with respect to data.",
        "Where several elements are the extreme, a positive gradient is shared out equally, a negative one "
        "goes to each.",
        "In a product each element's gradient is that of the segment times the product of all others.",
        Clause("The order of multiplications is not specified.", About.UNSPECIFIED),
    ),
)
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    """The gradient of segment_reduce."""
    by = _Segments(data, lengths, offsets, axis % data.dim())
    wide, own = accurate(grad), accurate(data)
    if reduce == "mean":
        wide = wide / by.sizes(list(grad.shape), wide.dtype)
    slope = by.read(wide)
    if reduce in ("max", "min"):
        extreme = by.read(accurate(output))
        # A NaN makes its segment's extreme one, whatever ``output`` says.
        hit = aten.bitwise_or.Tensor(aten.eq.Tensor(own, extreme), aten.isnan.default(own))
        hits = by.read(by.reduced(hit.to(own.dtype), "sum", 0.0))
        shared = aten.where.self(aten.gt.Scalar(slope, 0), slope / hits, slope)
        slope = aten.where.self(hit, shared, aten.full_like.default(slope, 0.0))
    elif reduce == "prod":
        slope = slope * _others(by, own, by.read(accurate(output)), 1.0 if initial is None else float(initial))
    return slope.to(data.dtype)


def _others(by: _Segments, own: Tensor, product: Tensor, initial: float) -> Tensor:
    """The product of the other elements of each one's segment: the whole over the element, unless that is 0 or NaN."""
    zero, nan = aten.eq.Scalar(own, 0), aten.isnan.default(own)
    special = aten.bitwise_or.Tensor(zero, nan)
    rest = by.read(by.reduced(aten.where.self(special, aten.full_like.default(own, 1.0), own), "prod", initial))
    zeros, nans = (by.read(by.reduced(flag.to(own.dtype), "sum", 0.0)) - flag.to(own.dtype) for flag in (zero, nan))
    nothing = aten.full_like.default(own, 0.0)
    rest = aten.where.self(aten.gt.Scalar(zeros, 0), nothing, rest)
    rest = aten.where.self(aten.gt.Scalar(nans, 0), aten.full_like.default(own, math.nan), rest)
    result: Tensor = aten.where.self(special, rest, product / aten.where.self(special, nothing + 1.0, own))
    return result


# -- bags of an embedding table ---------------------------------------------------------------------------------------

SUM, MEAN, MAX = 0, 1, 2
Saved = tuple[Tensor, Tensor, Tensor, Tensor]


def _bag_of(indices: Tensor, offsets: Tensor) -> Tensor:
    """The number of the bag that each index is in."""
    places = aten.arange.default(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    result: Tensor = aten.searchsorted.Tensor(offsets, places, right=True) - 1
    return result


def _counted(indices: Tensor, padding_idx: int) -> Tensor:
    """Which indices count."""
    if padding_idx < 0:
        return torch.ones_like(indices, dtype=torch.bool)
    result: Tensor = aten.ne.Scalar(indices, padding_idx)
    return result


def _column(x: Tensor) -> Tensor:
    result: Tensor = aten.unsqueeze.default(x, 1)
    return result


def _rows_added(count: Any, place: Tensor, rows: Tensor) -> Tensor:
    base = aten.full.default([count, rows.shape[1]], 0, dtype=rows.dtype, device=rows.device)
    result: Tensor = aten.index_put.default(base, [place], rows, True)
    return result


def _saves_nothing(weight: Tensor, scale: Tensor | None, padding_idx: int) -> bool:
    in_order = weight.stride(1) == 1 and (scale is None or scale.stride(0) == 1)
    return in_order and padding_idx < 0 and weight.dtype in (torch.float32, torch.float16)


_BAGS = (
    Clause(
        "mode is 0 for the sum, 1 for the mean, 2 for the maximum; an empty bag gives 0.",
        About.EMPTY,
        parameters=("mode",),
    ),
    "The row padding_idx does not count.",
    Clause(
        "Bag i begins at offsets[i]; with include_last_offset the last offset is the end of all.",
        parameters=("include_last_offset",),
    ),
    Clause("The order of additions is not specified.", About.UNSPECIFIED),
    "The other results are the bag of each index, how many count in each bag, and with maximum the row that each "
    "element came from.",
)


_ROWS = ShapeRule(
    "the elements of indices, and of a row", lambda args: (args["indices"].numel, args["weight"].shape[1])
)
_ADDED = Places(
    count=ShapeRule(
        "the elements of indices, and of a row of grad", lambda args: (args["indices"].numel, args["grad"].shape[1])
    )
)


@family(
    "_embedding_bag.default",
    tags=TAGS | UNORDERED,
    places=Places("weight", _ROWS),
    clauses=_BAGS,
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(weighs_padding=True),
    row_major=True,
)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Saved:
    """Rows of a table reduced bag by bag, and what the gradient needs."""
    if weight.device.type != "cpu":
        return NotImplemented  # other devices save other things
    count = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    bag, counts = _bag_of(indices, offsets), _counted(indices, padding_idx)
    rows = accurate(aten.index.Tensor(weight, [indices]))
    if per_sample_weights is not None:
        rows = rows * _column(per_sample_weights.to(rows.dtype))
    zeros = aten.full.default([count], 0, dtype=offsets.dtype, device=weight.device)
    sizes = aten.index_put.default(zeros, [bag], counts.to(offsets.dtype), True)
    saved = bag.to(offsets.dtype)
    if mode == MAX:
        return _greatest(weight, indices, bag, counts, rows, sizes, count, saved)
    rows = aten.where.self(_column(counts), rows, aten.full_like.default(rows, 0.0))
    out = _rows_added(count, bag, rows)
    if mode == MEAN:
        out = out / _column(aten.clamp.default(sizes, 1).to(out.dtype))
        return out.to(weight.dtype), saved, sizes, aten.clone.default(sizes)
    if _saves_nothing(weight, per_sample_weights, padding_idx):
        saved = aten.full.default([0], 0, dtype=offsets.dtype, device=weight.device)
    return out.to(weight.dtype), saved, zeros, aten.clone.default(zeros)


def _greatest(
    weight: Tensor, indices: Tensor, bag: Tensor, counts: Tensor, rows: Tensor, sizes: Tensor, count: Any, saved: Tensor
) -> Saved:
    """The maximum of each bag, and the first row that has it. Eager compares each row with what it has so far, so that
    a NaN of a bag's first row stays, and others never come in.
    """
    n = indices.shape[0]
    shape = [count, weight.shape[1]]
    at = aten.expand.default(_column(bag), list(rows.shape))
    places = _column(aten.arange.default(n, device=rows.device))
    last = aten.full.default(shape, n, dtype=torch.int64, device=rows.device)
    nowhere = aten.full.default([], n, dtype=torch.int64, device=rows.device)
    counted = aten.expand.default(_column(counts), list(rows.shape))
    begin = aten.scatter_reduce.two(last, 0, at, aten.where.self(counted, places, nowhere), "amin")
    stays = aten.eq.Tensor(aten.gather.default(begin, 0, at), places)
    nan = aten.isnan.default(rows)
    counted = aten.bitwise_and.Tensor(counted, aten.bitwise_or.Tensor(stays, aten.bitwise_not.default(nan)))
    rows = aten.where.self(counted, rows, aten.full_like.default(rows, -math.inf))
    base = aten.full.default(shape, -math.inf, dtype=rows.dtype, device=rows.device)
    out = aten.scatter_reduce.two(base, 0, at, rows, "amax")
    hit = aten.bitwise_or.Tensor(aten.eq.Tensor(rows, aten.gather.default(out, 0, at)), aten.isnan.default(rows))
    hit = aten.bitwise_and.Tensor(hit, counted)
    first = aten.scatter_reduce.two(last, 0, at, aten.where.self(hit, places, nowhere), "amin")
    padded = aten.constant_pad_nd.default(indices, [0, 1])
    row = aten.index.Tensor(padded, [first]).to(saved.dtype)
    filled = _column(aten.gt.Scalar(sizes, 0))
    out = aten.where.self(filled, out, aten.full_like.default(out, 0.0))
    return out.to(weight.dtype), saved, sizes, aten.where.self(filled, row, aten.full_like.default(row, 0))


@family(
    "_embedding_bag_forward_only.default",
    tags=TAGS | UNORDERED,
    places=Places("weight", _ROWS),
    clauses=(
        *_BAGS,
        Clause(
            "For the sum with include_last_offset, the counts and rows are as many as the offsets.",
            parameters=("include_last_offset",),
        ),
    ),
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(weighs_padding=True),
)
def embedding_bag_forward_only(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Saved:
    """Rows of a table reduced bag by bag, where no gradient is wanted."""
    result: Any = embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
    )
    if result is NotImplemented or not include_last_offset or mode != SUM:
        return result
    out, bag, *_ = result
    zeros = aten.full.default(list(offsets.shape), 0, dtype=offsets.dtype, device=weight.device)
    return out, bag, zeros, aten.clone.default(zeros)


@family(
    "_embedding_bag_backward.default",
    tags=TAGS | UNORDERED,
    places=_ADDED,
    clauses=(
        "It is the gradient of embedding_bag with respect to its table, from what the forward saved.",
        Clause(
            "With scale_grad_by_freq each row's gradient is divided by how often it was taken.",
            parameters=("scale_grad_by_freq",),
        ),
        Clause("The order of additions is not specified.", About.UNSPECIFIED),
    ),
    row_major=True,
)
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of embedding_bag with respect to the table."""
    if sparse:
        return NotImplemented
    bag = _bag_of(indices, offsets) if offset2bag.shape[0] == 0 else offset2bag
    return embedding_bag_dense_backward(
        grad,
        indices,
        bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@family(
    "_embedding_bag_dense_backward.default",
    tags=TAGS | UNORDERED,
    places=_ADDED,
    clauses=("As embedding_bag_backward.", Clause("The order of additions is not specified.", About.UNSPECIFIED)),
)
def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of embedding_bag with respect to the table, whichever bag each index is in."""
    wide = accurate(grad)
    if mode == MAX:
        filled = _column(aten.gt.Scalar(bag_size, 0))
        base = aten.full.default([num_weights, grad.shape[1]], 0, dtype=wide.dtype, device=grad.device)
        wide = aten.where.self(filled, wide, aten.full_like.default(wide, 0.0))
        return aten.scatter_add.default(base, 0, maximum_indices.to(torch.int64), wide).to(grad.dtype)
    rows = aten.index.Tensor(wide, [offset2bag])
    if mode == MEAN:
        sizes = aten.index.Tensor(bag_size, [offset2bag])
        rows = rows / _column(aten.clamp.default(sizes, 1).to(rows.dtype))
    if per_sample_weights is not None:
        rows = rows * _column(per_sample_weights.to(rows.dtype))
    if scale_grad_by_freq:
        base = aten.full.default([num_weights], 0, dtype=torch.int64, device=grad.device)
        often = aten.index_put.default(base, [indices], aten.full_like.default(indices, 1, dtype=torch.int64), True)
        rows = rows / _column(aten.index.Tensor(often, [indices]).to(rows.dtype))
    rows = aten.where.self(_column(_counted(indices, padding_idx)), rows, aten.full_like.default(rows, 0.0))
    return _rows_added(num_weights, indices, rows).to(grad.dtype)


@family(
    "_embedding_bag_per_sample_weights_backward.default",
    tags=TAGS,
    places=Places("weight", _ROWS),
    clauses=("It is the gradient of embedding_bag with respect to per_sample_weights, 0 for padding.",),
    row_major=True,
)
def embedding_bag_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """The gradient of embedding_bag with respect to the weights of its samples."""
    bag = _bag_of(indices, offsets) if offset2bag.shape[0] == 0 else offset2bag
    products = aten.index.Tensor(accurate(grad), [bag]) * aten.index.Tensor(accurate(weight), [indices])
    result = aten.sum.dim_IntList(products, [1])
    return aten.where.self(_counted(indices, padding_idx), result, aten.full_like.default(result, 0.0)).to(grad.dtype)


@family(
    "embedding_renorm.default",
    tags=TAGS,
    places=Places(
        count=ShapeRule(
            "the elements of indices, and of a row", lambda args: (args["indices"].numel, args["self"].shape[1])
        )
    ),
    clauses=(
        "Rows that indices name are multiplied by max_norm / (norm + 1e-7) if their norm is above max_norm.",
        "Other rows stay.",
    ),
)
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """The table with rows that are taken scaled down to a norm."""
    flat = aten.reshape.default(indices, [indices.numel()])
    rows = aten.index.Tensor(weight, [flat])
    norm = aten.linalg_vector_norm.default(accurate(rows), norm_type, [1], True)
    scaled = (accurate(rows) * (max_norm / (norm + 1e-7))).to(weight.dtype)
    return aten.index_put.default(weight, [flat], aten.where.self(aten.gt.Scalar(norm, max_norm), scaled, rows))
