"""Rows of many lengths one after another, as jagged tensors hold them, and the same padded to one length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from keel.spec.clause import Clause
from keel.spec.op import Family

aten = torch.ops.aten
family = Family("jagged")
Tensor = torch.Tensor

_TAGS = frozenset({"indexing"})
_OFFSETS = "Row b is values[offsets[b]:offsets[b + 1]]; there is one list of offsets."


def _wrapped(value: Any, dtype: torch.dtype) -> Any:
    """A number as conversions to an integer dtype give it, where ``full`` would refuse it."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool or not isinstance(value, int | float):
        return value
    info = torch.iinfo(dtype)
    return (int(value) - info.min) % (1 << info.bits) + info.min if math.isfinite(value) else 0


@family(
    "_jagged_to_padded_dense_forward",
    clauses=(
        _OFFSETS,
        "The result is [rows, max_lengths[0], *values.shape[1:]].",
        "Elements beyond a row's length are padding_value; elements beyond max_lengths[0] are left out.",
    ),
    tags=_TAGS,
)
def jagged_to_padded(
    values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[Any], padding_value: float = 0.0
) -> Tensor:
    """Rows of many lengths padded to one."""
    if len(offsets) != 1:
        return NotImplemented
    total, rows = values.shape[0], offsets[0].shape[0] - 1
    starts = aten.slice.Tensor(offsets[0], 0, 0, rows)
    ends = aten.slice.Tensor(offsets[0], 0, 1, rows + 1)
    at = aten.unsqueeze.default(starts, 1) + aten.arange.start_step(
        0, max_lengths[0], dtype=starts.dtype, device=values.device
    )
    at = aten.where.ScalarOther(aten.lt.Tensor(at, aten.unsqueeze.default(ends, 1)), at, total)
    padding = aten.full.default(
        [1, *values.shape[1:]], _wrapped(padding_value, values.dtype), dtype=values.dtype, device=values.device
    )
    return aten.index.Tensor(aten.cat.default([values, padding], 0), [at])


@family(
    "_padded_dense_to_jagged_forward",
    clauses=(
        _OFFSETS,
        Clause(
            "total_L is the sum of the lengths, and read from the offsets where it is not given; elements beyond a "
            "row's length are left out.",
            parameters=("total_L",),
        ),
        "A row that is longer than the padded one has zeros at its end.",
    ),
    tags=_TAGS,
)
def padded_to_jagged(dense: Tensor, offsets: Sequence[Tensor], total_L: Any = None) -> Tensor:
    """Rows of one length cut to many lengths, one after another."""
    if len(offsets) != 1:
        return NotImplemented
    rows, length = dense.shape[:2]
    if total_L is None:
        total_L = aten._local_scalar_dense.default(aten.select.int(offsets[0], 0, rows))
    count = aten.arange.start_step(0, total_L, dtype=offsets[0].dtype, device=dense.device)
    row = aten.searchsorted.Tensor(offsets[0], count, right=True) - 1
    row = aten.clamp.default(row, 0, rows - 1)
    column = count - aten.index.Tensor(offsets[0], [row])
    flat = aten.reshape.default(dense, [rows * length, *dense.shape[2:]])
    nothing = aten.full.default([1, *dense.shape[2:]], 0, dtype=dense.dtype, device=dense.device)
    at = aten.where.ScalarOther(aten.lt.Scalar(column, length), row * length + column, rows * length)
    return aten.index.Tensor(aten.cat.default([flat, nothing], 0), [at])
