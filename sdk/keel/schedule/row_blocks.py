"""Products with padded rows whose result is wanted without the pad: computed and copied some rows at a time.

The padded result of a projection to a vocabulary can be the largest tensor of a model. Together with its copy
without the pad, it would double the peak of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from keel.schedule.tensor_graph import ExternCall, Slot, Tensor

LARGE = 2**25
"""The bytes of a result from which it is computed by blocks."""
BLOCKS = 8
"""How many blocks: each product is still large, and memory grows by an eighth of the result."""


@dataclass(frozen=True)
class RowBlocks:
    """Runs ``product`` on blocks of rows of its argument ``at``, and returns the first ``columns`` of each result.

    The arguments are tensors of rank 2, and one row that is added to all. Returns a contiguous tensor.
    """

    product: Callable[..., torch.Tensor]
    at: int
    columns: int
    dtype: torch.dtype

    @property
    def __name__(self) -> str:
        return "product_by_row_blocks"

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        before, (left, *after) = args[: self.at], args[self.at :]
        result: torch.Tensor = left.new_empty((left.shape[0], self.columns), dtype=self.dtype)
        size = -(-left.shape[0] // BLOCKS)
        for rows, block in zip(left.split(size), result.split(size), strict=True):
            block.copy_(self.product(*before, rows, *after, **kwargs)[:, : self.columns])
        return result


def blocks_of_rows(tensors: Sequence[Tensor], call: ExternCall) -> RowBlocks | None:
    """How to compute the result of a product, whose last two tensors are its matrices, by blocks; None if it is small,
    or not of two matrices and a row.
    """
    places = [k for k, a in enumerate(call.args) if isinstance(a, Slot)]
    (result,) = call.results
    *added, left, _ = (tensors[call.args[k].number].type for k in places)
    type = tensors[result].type
    rows_alike = all(t.rank == 1 or t.shape[0] == 1 for t in added)
    if type.rank != 2 or left.rank != 2 or not rows_alike or int(type.numel) * type.dtype.itemsize < LARGE:
        return None
    return RowBlocks(call.extern.run, places[-2], int(type.shape[1]), type.dtype)
