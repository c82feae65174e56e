"""Writes to places that are data, in terms of index_put."""
from __future__ import annotations

import torch

from keel.spec.op import Family

aten = torch.ops.aten
family = Family("indexing")


@family(aten.put.default, clauses=(
    "index counts through the whole of x in row-major order, from the end if it is negative.",
    "With accumulate, source is added to what stands there; equal indices add up.",
))
def put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    """x with source written at index."""
    flat = aten.reshape.default(x, [x.numel()])
    values = aten.reshape.default(source, list(index.shape))
    return aten.reshape.default(aten.index_put.default(flat, [index], values, accumulate),
                                list(x.shape))


@family(aten.masked_scatter.default, clauses=(
    "Where the mask is true stand the elements of source, one after the other in row-major order; elsewhere x.",
    "source has at least as many elements as the mask has true ones.",
))
def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """x with consecutive elements of source where the mask is true."""
    shape = list(torch.broadcast_shapes(x.shape, mask.shape))
    x, mask = aten.expand.default(x, shape), aten.expand.default(mask, shape)
    if not source.numel():
        return aten.clone.default(x)
    flat = aten.reshape.default(mask, [mask.numel()])
    rank = aten.cumsum.default(flat.to(torch.int64), 0) - 1
    which = aten.clamp.default(rank, 0, source.numel() - 1)
    values = aten.index_select.default(aten.reshape.default(source, [source.numel()]), 0, which)
    return aten.where.self(mask, aten.reshape.default(values, list(mask.shape)), x)
