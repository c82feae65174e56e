"""Samples of operators that reduce, move and index elements: sizes 0 and 1, rank 0, dims from both ends, layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from keel.spec.op import Sample, Samples
from keel.spec.samples import drawn, layouts, specials

SIZES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (2, 3), (3, 1, 4), (2, 0, 3))


LAID_OUT = (torch.float16, torch.float32, torch.int64, torch.complex64, torch.bool)
"""Dtypes tried in every layout, which is one question; the others are another, and are tried in one."""


def shaped(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """One tensor of each size and, in some dtypes, of each layout."""
    for shape in SIZES:
        yield drawn(dtype, *shape, seed=len(shape))
    if dtype in LAID_OUT:
        yield from layouts(dtype)


def along(dtype: torch.dtype, empty: bool = True) -> Iterator[tuple[torch.Tensor, int]]:
    """Tensors, special values first, each with its first and its last dimension, from the front and from the end;
    ``empty`` says whether a dimension without elements is among them.
    """
    yield specials(dtype), 0
    for x in shaped(dtype):
        for dim in sorted({0 if x.dim() < 3 else 1, -1}):
            if empty or not x.dim() or x.shape[dim]:
                yield x, dim


def one_dim(empty: bool = True, **keywords: Any) -> Samples:
    """``op(x, dim)`` and, where ``keywords`` says what keepdim is called, with it."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for x, dim in along(dtype, empty):
            yield Sample((x, dim), {})
            for name, value in keywords.items():
                yield Sample((x, dim), {name: value})

    return samples


def many_dims(empty: bool = True, keywords: bool = False) -> Samples:
    """``op(x, dims, keepdim)``: one, two, all named; ``keywords`` says that keepdim is given by name."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for x, dim in along(dtype, empty):
            yield Sample((x, [dim]))
            yield Sample((x, [dim]), {"keepdim": True}) if keywords else Sample((x, [dim], True))
        for x in shaped(dtype):
            if empty or x.numel():
                yield Sample((x, list(range(x.dim()))))
            if x.dim() > 2 and (empty or x.numel()):
                yield Sample((x, [-1, 0]))

    return samples


def each(
    *cases: tuple[Sequence[int], tuple[Any, ...]],
    layout: Callable[[torch.Tensor], torch.Tensor] | None = None,
    **keywords: Any,
) -> Samples:
    """``op(x, *args)`` on a tensor of each of the sizes, row-major and in another layout."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for i, (shape, args) in enumerate(cases):
            x = drawn(dtype, *shape, seed=i)
            yield Sample((x, *args), keywords)
            if x.dim() > 1:
                yield Sample(((layout or swapped)(x), *args), keywords)

    return samples


def swapped(x: torch.Tensor) -> torch.Tensor:
    """Equal values; the first and the last dimension stand in memory in each other's place."""
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def indices(below: int, *shape: int, seed: int = 0, negative: bool = False) -> torch.Tensor:
    """Indices within ``below``, from the end too if ``negative``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-below if negative else 0, below, shape, generator=generator)
