"""Sample arguments: special values first, then layouts, sizes and ranks. Deterministic.

Values are drawn from a generator of their own, so no global seed matters and none is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from keel.spec.op import Sample

INF, NAN = float("inf"), float("nan")
SHAPES = ((), (1,), (0,), (7,), (2, 3), (3, 1, 4), (2, 0, 3), (65, 33))


def specials(dtype: torch.dtype) -> torch.Tensor:
    """The values where operators differ: zeros of both signs, ones, halves, extremes, subnormals, infinities, NaN."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = specials(torch.float32)[::3].double()
        return torch.complex(parts.repeat_interleave(len(parts)), parts.repeat(len(parts))).to(dtype)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        near = [v for v in (-2, -1, 0, 1, 2, 3, 7) if info.min <= v]
        return torch.tensor([info.min, info.min + 1, *near, info.max - 1, info.max], dtype=dtype)
    facts = torch.finfo(dtype)
    tiny = facts.smallest_normal
    positive = [0.0, tiny / 2, tiny, facts.eps, 0.5, 1.0, 1.5, 2.5, 3.0, 88.0, facts.max]
    positive += [INF] if dtype not in (torch.float8_e4m3fn,) else []
    values = torch.tensor([s * v for v in positive for s in (1.0, -1.0)] + [NAN], dtype=torch.float64)
    return values.to(dtype)


def drawn(dtype: torch.dtype, *shape: int, seed: int = 0, low: float = -4.0, high: float = 4.0) -> torch.Tensor:
    """Values between ``low`` and ``high``, cut to what the dtype holds."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if dtype.is_complex:
        return torch.complex(values, values.flip(-1) if shape else values).to(dtype)
    if not dtype.is_floating_point:
        values = values.floor().clamp(min=torch.iinfo(dtype).min)
    return values.to(dtype)


def layouts(dtype: torch.dtype, seed: int = 0) -> Iterator[torch.Tensor]:
    """One tensor of each kind of layout: row-major, transposed, channels last, expanded, with an offset, with gaps."""
    yield drawn(dtype, 4, 6, seed=seed)
    yield drawn(dtype, 6, 4, seed=seed).t()
    yield drawn(dtype, 2, 3, 4, 5, seed=seed).to(memory_format=torch.channels_last)
    yield drawn(dtype, 4, 1, seed=seed).expand(4, 6)
    yield drawn(dtype, 30, seed=seed)[5:].view(5, 5)
    yield drawn(dtype, 6, 8, seed=seed)[::2, 1::3]


def unary(dtype: torch.dtype) -> Iterator[Sample]:
    """For an operator of one tensor: special values, sizes, layouts."""
    yield Sample((specials(dtype),))
    for shape in SHAPES:
        yield Sample((drawn(dtype, *shape, seed=len(shape)),))
    for x in layouts(dtype):
        yield Sample((x,))


def binary(dtype: torch.dtype) -> Iterator[Sample]:
    """For an operator of two tensors: pairs of special values, broadcasting, layouts."""
    values = specials(dtype)
    yield Sample((values[:, None], values[None, :]))
    for shape in SHAPES:
        yield Sample((drawn(dtype, *shape, seed=1), drawn(dtype, *shape, seed=2)))
    for a, b in (((3, 1), (1, 4)), ((4,), (2, 3, 4)), ((), (3,)), ((2, 1, 3), (5, 1)), ((0, 1), (1, 3))):
        yield Sample((drawn(dtype, *a, seed=3), drawn(dtype, *b, seed=4)))
    for x, y in zip(layouts(dtype, 5), layouts(dtype, 6), strict=True):
        yield Sample((x, y))
        yield Sample((x, y.contiguous()))
