"""Histograms: how many elements, or what weight, fall into each of several bins.

A bin has its left edge and not its right one, but for the last, which has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import HALVES
from keel.spec.numerics import Numerics
from keel.spec.op import UNORDERED, Family
from keel.spec.pytorch_kernels import EVERY_DEVICE, CudaKernel, lacks

aten = torch.ops.aten
family = Family("histograms")
_FINITE = Numerics(finite=True)
Tensor = torch.Tensor

TAGS = frozenset({"indexing"})
_BINS = (
    "A bin has its left edge, the last bin its right edge too.",
    Clause("Elements outside, and NaN, do not count.", About.NONFINITE),
)
_RANGE = (
    "Where the bounds are equal they are moved apart, by {} each way.",
    Clause("Where no bounds are given they are the least and the greatest element; these are finite.", About.NONFINITE),
)


def _bounds(x: Tensor, low: float | None, high: float | None, distance: float) -> tuple[Tensor, Tensor]:
    """The outer edges: those given, or the extremes of x; 0 and 1 of no elements."""

    def number(value: float) -> Tensor:
        made: Tensor = aten.full.default([], value, dtype=x.dtype, device=x.device)
        return made

    if low is not None and high is not None:
        first, last = number(low), number(high)
    elif x.numel() == 0:
        first, last = number(0.0), number(1.0)
    else:
        first, last = aten.amin.default(x), aten.amax.default(x)
    same = aten.eq.Tensor(first, last)
    return aten.where.self(same, first - distance, first), aten.where.self(same, last + distance, last)


def _gathered(place: Tensor, inside: Tensor, weight: Tensor | None, bins: Any, dtype: torch.dtype) -> Tensor:
    """The sum of weights by place; one more place takes what is outside."""
    where = aten.where.self(inside, place, aten.full.default([], bins, dtype=torch.int64, device=place.device))
    if weight is None:
        weight = aten.full.default(list(place.shape), 1, dtype=dtype, device=place.device)
    base = aten.full.default([bins + 1], 0, dtype=dtype, device=place.device)
    result: Tensor = aten.slice.Tensor(aten.scatter_add.default(base, 0, where, weight), 0, 0, bins)
    return result


@family(
    "histc.default",
    numerics=_FINITE,
    tags=TAGS,
    clauses=(
        *_BINS,
        "If min and max are equal, the least and the greatest element take their places.",
        _RANGE[0].format(1),
        "The bin of x is the integer part of (x - min) * bins / (max - min).",
    ),
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=lacks(*HALVES)),
)
def histc(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """How many elements fall into each of equal bins."""
    flat = aten.reshape.default(x, [x.numel()])
    low, high = (None, None) if min == max else (float(min), float(max))
    first, last = _bounds(flat, low, high, 1.0)
    inside = aten.bitwise_and.Tensor(aten.ge.Tensor(flat, first), aten.le.Tensor(flat, last))
    share = (flat - first) * bins / (last - first)
    place = aten.where.self(inside, share, aten.full_like.default(share, 0.0)).to(torch.int64)
    return _gathered(aten.clamp.default(place, None, bins - 1), inside, None, bins, x.dtype)


def _edges(x: Tensor, bins: int, low: float | None, high: float | None) -> Tensor:
    """bins + 1 edges at equal distances, as linspace has them: from either end to the middle."""
    first, last = _bounds(x, low, high, 0.5)
    steps = aten.arange.default(bins + 1, device=x.device)
    width = (last - first) / bins
    from_first, from_last = first + steps.to(x.dtype) * width, last - (bins - steps).to(x.dtype) * width
    result: Tensor = aten.where.self(aten.lt.Scalar(steps, (bins + 1) // 2), from_first, from_last)
    return result


def _bin_of(x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The bin of each element, and whether there is one."""
    bins = edges.shape[0] - 1
    first, last = aten.select.int(edges, 0, 0), aten.select.int(edges, 0, bins)
    inside = aten.bitwise_and.Tensor(aten.ge.Tensor(x, first), aten.le.Tensor(x, last))
    place = aten.searchsorted.Tensor(edges, x, right=True) - 1
    return aten.clamp.default(place, 0, bins - 1), inside


def _density(hist: Tensor, edges: Sequence[Tensor]) -> Tensor:
    hist = hist / aten.sum.dim_IntList(hist, list(range(hist.dim())))
    for d, e in enumerate(edges):
        widths = aten.slice.Tensor(e, 0, 1) - aten.slice.Tensor(e, 0, 0, e.shape[0] - 1)
        hist = hist / aten.reshape.default(widths, [-1 if k == d else 1 for k in range(hist.dim())])
    return hist


_WEIGHTED = (
    Clause(
        "weight has an element per element, and they are added up in no specified order; without it each element "
        "counts 1.",
        parameters=("weight",),
    ),
    Clause("With density the sum over bins of height times width is 1.", parameters=("density",)),
)


@family("histogram.bins_tensor", tags=TAGS | UNORDERED, clauses=(*_BINS, *_WEIGHTED, "bins are the edges, ascending."))
def histogram(
    x: Tensor,
    bins: Tensor,
    *,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """How many elements fall into each bin between given edges, and the edges."""
    flat = aten.reshape.default(x, [x.numel()])
    flat_weight = None if weight is None else aten.reshape.default(weight, [x.numel()])
    hist = _gathered(*_bin_of(flat, bins), flat_weight, bins.shape[0] - 1, x.dtype)
    return _density(hist, [bins]) if density else hist, aten.clone.default(bins)


@family(
    "histogram.bin_ct",
    numerics=_FINITE,
    tags=TAGS | UNORDERED,
    clauses=(*_BINS, *_WEIGHTED, _RANGE[0].format(0.5), _RANGE[1]),
)
def histogram_of_count(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """How many elements fall into each of equal bins, and their edges."""
    low, high = range if range is not None else (None, None)
    edges = _edges(aten.reshape.default(x, [x.numel()]), bins, low, high)
    return histogram(x, edges, weight=weight, density=density)[0], edges


@family(
    "_histogramdd_bin_edges.default",
    numerics=_FINITE,
    tags=TAGS,
    clauses=(_RANGE[0].format(0.5), _RANGE[1], Clause("range has two bounds per column.", parameters=("range",))),
)
def histogramdd_edges(
    x: Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None, **_: Any
) -> list[Tensor]:
    """The edges of equal bins, for each column of points."""
    rows = aten.reshape.default(x, [-1, x.shape[-1]])
    pairs = [(None, None)] * len(bins) if range is None else list(zip(range[::2], range[1::2], strict=True))
    return [_edges(aten.select.int(rows, 1, i), n, *pairs[i]) for i, n in enumerate(bins)]


@family("_histogramdd_from_bin_tensors.default", tags=TAGS | UNORDERED, clauses=(*_BINS, *_WEIGHTED))
def histogramdd(x: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Tensor:
    """How many points, the rows of x, fall into each cell between the edges of their columns."""
    rows = aten.reshape.default(x, [-1, x.shape[-1]])
    place: Any = 0
    inside: Any = None
    cells: Any = 1
    for i, edges in enumerate(bins):
        own, within = _bin_of(aten.select.int(rows, 1, i), edges)
        place, cells = place * (edges.shape[0] - 1) + own, cells * (edges.shape[0] - 1)
        inside = within if inside is None else aten.bitwise_and.Tensor(inside, within)
    flat_weight = None if weight is None else aten.reshape.default(weight, [rows.shape[0]])
    hist = aten.reshape.default(_gathered(place, inside, flat_weight, cells, x.dtype), [e.shape[0] - 1 for e in bins])
    return _density(hist, bins) if density else hist


@family(
    "_histogramdd_from_bin_cts.default",
    numerics=_FINITE,
    tags=TAGS | UNORDERED,
    clauses=(*_BINS, *_WEIGHTED, _RANGE[0].format(0.5), _RANGE[1]),
)
def histogramdd_of_counts(
    x: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """How many points, the rows of x, fall into each of equal cells."""
    return histogramdd(x, histogramdd_edges(x, bins, range=range), weight=weight, density=density)
