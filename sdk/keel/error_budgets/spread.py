"""How far legal evaluations of a value lie apart, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from keel.error_budgets.double_precision import eps, tiny, wide
from keel.error_budgets.memory_order import in_shape_order, memory_order

FEWEST = 8
"""A row with fewer elements than this is joined with the next dimension. Fewer rows than this have no columns."""
BLOCK = 1 << 15
"""Elements that are worked on at a time, so that what is computed of them stays in the cache of a processor."""


def spread(exact: Tensor, others: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """How far legal evaluations in ``dtype`` may be from the exact value: at least a unit in the last place, and as far
    as the ``others`` are, at each element and on average.

    The average is that of the element's row, both in absolute terms and relative to its size, and that of its row times
    that of its column over that of all: errors of a product of matrices grow with the rows of one and the columns of
    the other, and a column can be far above the average of the row. Rows lie in a row in memory. Elements that are not
    finite count as exact.
    """
    order = memory_order(exact)
    rows = _in_rows(exact, order)
    result = torch.empty(rows.shape, dtype=torch.float64, device=exact.device)
    blocks = list(_blocks(rows))
    flat = [_in_rows(other, order) for other in others]
    means, sums = list[Tensor](), result.new_zeros(rows.shape[1])
    for block in blocks:
        size = rows[block].abs()
        most = _most(rows[block], size, [other[block] for other in flat], dtype)
        size.nan_to_num_(0.0, 0.0, 0.0)
        roots = most.sqrt()
        means.append(roots.mean(1, keepdim=True))
        sums += roots.sum(0)
        relative = (most / size).nan_to_num_(0.0, 0.0, 0.0).sqrt_().mean(1, keepdim=True)
        torch.maximum(most, means[-1].square(), out=most)
        torch.maximum(most, size.mul_(relative.square_()), out=result[block])
    if rows.shape[0] >= FEWEST:
        columns = sums / sums.mean()  # each column's mean over that of all
        for block, mean in zip(blocks, means, strict=True):
            torch.maximum(result[block], (mean * columns).square_(), out=result[block])
    return in_shape_order(result.view([exact.shape[d] for d in order]), order)


def distance(x: Tensor, exact: Tensor) -> Tensor:
    """The distance of each element from the exact value; 0 if either is not finite."""
    error: Tensor = (wide(x) - exact).abs()
    return error.nan_to_num_(0.0, 0.0, 0.0)


def _in_rows(x: Tensor, order: list[int]) -> Tensor:
    """``x`` as a matrix. A row is the last dimensions in ``order``, as many as have enough elements."""
    x, dims, count = x.permute(order), 0, 1
    while dims < x.dim() and count < FEWEST:
        dims += 1
        count *= x.shape[-dims]
    return x.reshape(-1 if count else 0, count)


def _blocks(rows: Tensor) -> Iterator[slice]:
    step = max(1, BLOCK // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        yield slice(start, start + step)


def _most(exact: Tensor, size: Tensor, others: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The largest distance of each element from ``exact``, whose absolute value is ``size``."""
    least = tiny(dtype)
    most = (size * eps(dtype)).add_(least).nan_to_num_(least, least, least)
    for other in others:
        torch.maximum(most, distance(other, exact), out=most)
    return most
