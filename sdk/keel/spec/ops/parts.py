"""Operators that return parts of their operand, or write one: each part is a slice, which is a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from keel.spec.op import Family

aten = torch.ops.aten
family = Family("parts")

Tensor = torch.Tensor


def _slices(x: Tensor, sizes: Sequence[Any], dim: int) -> list[Tensor]:
    start: Any = 0
    parts = []
    for size in sizes:
        parts.append(aten.slice.Tensor(x, dim, start, start + size))
        start = start + size
    return parts


def _equal(total: Any, size: Any) -> list[Any]:
    """Sizes of the parts of ``total`` when each has ``size`` but the last, which has what is left."""
    count = max((total + size - 1) // size, 1) if size else 1
    return [size] * (count - 1) + [total - size * (count - 1)]


@family(
    "split.Tensor",
    "unsafe_split.Tensor",
    "split_copy.Tensor",
    clauses=(
        "Every part has split_size elements along dim but the last, which has the rest; there is at least one part.",
    ),
)
def split(x: Tensor, split_size: Any, dim: int = 0) -> list[Tensor]:
    """Parts of equal size along a dimension."""
    return _slices(x, _equal(x.shape[dim], split_size), dim)


@family(
    "split_with_sizes.default",
    "unsafe_split_with_sizes.default",
    "split_with_sizes_copy.default",
    clauses=("The sizes add up to the dimension's.",),
)
def split_with_sizes(x: Tensor, split_sizes: Sequence[Any], dim: int = 0) -> list[Tensor]:
    """Parts of given sizes along a dimension."""
    return _slices(x, split_sizes, dim)


@family(
    "unbind.int",
    "unbind_copy.int",
    clauses=("There is one part per index of the dimension, and the parts lack that dimension.",),
)
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    """Every element along a dimension."""
    return [aten.select.int(x, dim, i) for i in range(int(x.shape[dim]))]


@family(
    aten.as_strided_scatter.default,
    clauses=("The elements that as_strided would give are those of src; the others are the operand's.",),
    row_major=True,
)
def as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> Tensor:
    """The operand with what as_strided would give replaced; only for a contiguous operand."""
    start = 0 if storage_offset is None else storage_offset - x.storage_offset()
    if not x.is_contiguous():
        return NotImplemented
    if start == 0 and src.numel() == x.numel() and list(stride) == _contiguous(size):
        return aten.view.default(aten.clone.default(src, memory_format=torch.contiguous_format), list(x.shape)).to(
            x.dtype
        )
    place = aten.full.default([1] * len(size), start, dtype=torch.int64, device=x.device)
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        steps = aten.arange.default(n, dtype=torch.int64, device=x.device) * s
        place = place + aten.view.default(steps, [n if i == d else 1 for i in range(len(size))])
    flat = aten.view.default(x, [x.numel()])
    put = aten.index_put.default(flat, [place], src.to(x.dtype))
    return aten.view.default(put, list(x.shape))


def _contiguous(size: Sequence[Any]) -> list[Any]:
    strides: list[Any] = []
    step: Any = 1
    for n in reversed(size):
        strides.insert(0, step)
        step = step * n
    return strides
