"""Reads from and writes to places that are data, made of gathers and scatters."""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import UNORDERED, Family, Places
from keel.spec.ops.indexing import BITS, INSIDE, PICKED, TAGS, halved
from keel.spec.pytorch_kernels import EVERY_DEVICE
from keel.spec.unspecified import out_of_order
from keel.torch_adapter import hint_of

aten = torch.ops.aten
family = Family("indexing")

Tensor = torch.Tensor


@family(
    "index_select.default",
    tags=TAGS,
    places=Places("self"),
    clauses=(
        BITS,
        INSIDE,
        Clause("An index without dimensions is one index.", About.SCALAR, parameters=("index",)),
        Clause("For a scalar it is the scalar.", About.SCALAR),
    ),
)
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The operand's slices of size 1 along a dimension, at given indices."""
    if not x.dim():
        return aten.clone.default(x)
    dim = dim % x.dim()
    at = aten.reshape.default(index, [index.numel()])
    return aten.index.Tensor(x, [*[None] * dim, at]).contiguous()


@family(
    "embedding.default",
    tags=TAGS,
    places=Places("weight"),
    clauses=(BITS, INSIDE, "padding_idx, scale_grad_by_freq and sparse matter to the gradient only."),
)
def embedding(
    weight: Tensor, index: Tensor, padding_idx: Any = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """The rows of a table at given indices."""
    return aten.index.Tensor(weight, [index]).contiguous()


@family(
    "searchsorted.Scalar",
    tags=TAGS,
    places=Places("sorted_sequence", halved("sorted_sequence")),
    clauses=(Clause("It is searchsorted of a tensor without dimensions.", About.SCALAR),),
    libraries=EVERY_DEVICE,
)
def searchsorted_number(
    sequence: Tensor,
    number: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where a number would go in a sorted sequence: as a number of a sum of both."""
    dtype = torch.result_type(sequence, number)
    value = aten.full.default([], number, dtype=dtype, device=sequence.device)
    return aten.searchsorted.Tensor(
        sequence.to(dtype), value, out_int32=out_int32, right=right, side=side, sorter=sorter
    )


@family(
    "bucketize.Tensor",
    tags=TAGS,
    places=Places("boundaries", halved("boundaries")),
    unspecified=out_of_order,
    clauses=("It is searchsorted of the boundaries, which have one dimension.",),
    libraries=EVERY_DEVICE,
)
def bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Between which boundaries elements lie."""
    return aten.searchsorted.Tensor(boundaries, x, out_int32=out_int32, right=right)


@family(
    "bucketize.Scalar",
    tags=TAGS,
    places=Places("boundaries", halved("boundaries")),
    clauses=(Clause("It is bucketize of a tensor without dimensions.", About.SCALAR),),
    libraries=EVERY_DEVICE,
)
def bucketize_number(number: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Between which boundaries a number lies: as a number of a sum of both."""
    dtype = torch.result_type(boundaries, number)
    value = aten.full.default([], number, dtype=dtype, device=boundaries.device)
    return aten.searchsorted.Tensor(boundaries.to(dtype), value, out_int32=out_int32, right=right)


@family(
    aten.put.default,
    tags=UNORDERED,
    places=PICKED,
    clauses=(
        Clause(
            "index counts through the whole of x in row-major order, from the end if it is negative.",
            parameters=("index",),
        ),
        Clause(
            "With accumulate, source is added to what stands there; equal indices add up, in no specified order.",
            parameters=("accumulate",),
        ),
    ),
)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """x with source written at index."""
    flat = aten.reshape.default(x, [x.numel()])
    values = aten.reshape.default(source, list(index.shape))
    return aten.reshape.default(aten.index_put.default(flat, [index], values, accumulate), list(x.shape))


@family(
    aten.masked_scatter.default,
    clauses=(
        "Where the mask is true, the result has the elements of source, one after the other in row-major order; "
        "elsewhere x.",
        Clause("source has at least as many elements as the mask has true ones.", parameters=("source",)),
    ),
    libraries=EVERY_DEVICE,
)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with consecutive elements of source where the mask is true."""
    shape = list(torch.broadcast_shapes(x.shape, mask.shape))
    x, mask = aten.expand.default(x, shape), aten.expand.default(mask, shape)
    elements = aten.reshape.default(source, [source.numel()])
    if hint_of(source.numel()) is None:
        elements = aten.constant_pad_nd.default(elements, [0, 1])  # else there may be nothing to look at
    elif not source.numel():
        return aten.clone.default(x)
    flat = aten.reshape.default(mask, [mask.numel()])
    rank = aten.cumsum.default(flat.to(torch.int64), 0) - 1
    which = aten.clamp.default(rank, 0, elements.shape[0] - 1)
    values = aten.index_select.default(elements, 0, which)
    return aten.where.self(mask, aten.reshape.default(values, list(mask.shape)), x)
