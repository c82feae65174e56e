"""How far legal evaluations of a value lie apart, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from keel.error_budgets.double_precision import eps, tiny, wide

FEWEST = 8
"""A row with fewer elements than this is joined with the next dimension."""


def spread(exact: Tensor, others: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """How far legal evaluations in ``dtype`` may be from the exact value: at least a unit in the last place, and as far
    as the ``others`` are, at each element and on average in its row, both in absolute terms and relative to its size.
    Elements that are not finite count as exact.
    """
    most = exact.abs() * eps(dtype) + tiny(dtype)
    most = torch.where(most.isfinite(), most, tiny(dtype))
    for other in others:
        most = torch.maximum(most, _distance(other, exact))
    size = exact.abs()
    relative = torch.where(size > 0, most / size, 0.0).nan_to_num(0.0, 0.0, 0.0)
    by_size = torch.where(size.isfinite(), size, 0.0) * _row_mean(relative)
    return torch.maximum(torch.maximum(most, _row_mean(most)), by_size)


def _distance(x: Tensor, exact: Tensor) -> Tensor:
    distance: Tensor = (wide(x) - exact).abs()
    return distance.nan_to_num(0.0, 0.0, 0.0)


def _row_mean(x: Tensor) -> Tensor:
    """The mean of each row, in which a few large elements count little: the square of the mean square root. A row is
    the last dimensions, as many as have enough elements.
    """
    dims, count = 0, 1
    while dims < x.dim() and count < FEWEST:
        dims += 1
        count *= x.shape[-dims]
    if not dims or not x.numel():
        return x
    mean: Tensor = x.sqrt().mean(tuple(range(-dims, 0)), keepdim=True)
    return mean.square()
