"""Sampling of images and volumes at given places, and the gradients; after ATen/native/GridSampler.h.

A sample is a weighted sum of the elements around its place, which may lie anywhere: weights are functions of the place,
so the gradient with respect to the grid is that of the weights times that of the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import UNORDERED, Family
from keel.spec.ops.resampling import cubic
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import NARROW_SUMS, Library

aten = torch.ops.aten
family = Family("sampling")

Tensor = torch.Tensor
_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_TAGS = frozenset({"resampling"})


@dataclass(frozen=True)
class _Tap:
    """One element of every sample: its place per dimension (whole numbers), its weight, the weight's slope by place."""

    places: tuple[Tensor, ...]
    weight: Tensor
    slopes: tuple[Tensor, ...]


def _zero(like: Tensor) -> Tensor:
    return aten.full.default([], 0.0, dtype=like.dtype, device=like.device)


def _number(condition: Tensor, like: Tensor) -> Tensor:
    return condition.to(like.dtype)


def _located(c: Tensor, size: Any, align: bool) -> tuple[Tensor, Any]:
    """Coordinates in [-1, 1] as places among ``size`` elements, and the slope of that."""
    if align:
        return (c + 1) / 2 * (size - 1), (size - 1) / 2
    return ((c + 1) * size - 1) / 2, size / 2


def _clipped(at: Tensor, size: Any) -> tuple[Tensor, Tensor]:
    """Held inside, and the slope: 0 at the borders and beyond them."""
    inside = aten.bitwise_and.Tensor(aten.gt.Scalar(at, 0), aten.lt.Scalar(at, size - 1))
    return aten.clamp.default(at, 0, size - 1), _number(inside, at)


def _reflected(at: Tensor, size: Any, align: bool) -> tuple[Tensor, Tensor]:
    """Folded back at the borders: the middles of the outermost elements with ``align``, else their outer edges."""
    low, high = (0, 2 * (size - 1)) if align else (-1, 2 * size - 1)
    if low == high:
        nothing = aten.mul.Scalar(at, 0)
        return nothing, nothing
    span = (high - low) / 2
    distance = at - low / 2
    sign = 1 - 2 * _number(aten.lt.Scalar(distance, 0), at)
    far = aten.abs.default(distance)
    extra = aten.fmod.Scalar(far, span)
    flips = aten.floor.default(far / span)
    even = aten.eq.Scalar(aten.remainder.Scalar(flips, 2), 0)
    result = aten.where.self(even, extra + low / 2, span - extra + low / 2)
    return result, aten.where.self(even, sign, aten.neg.default(sign))


def _padded(at: Tensor, size: Any, padding: int, align: bool) -> tuple[Tensor, Tensor | None]:
    """The place after padding, and the slope of that; None for 1."""
    if padding == _ZEROS:
        return at, None
    if padding == _BORDER:
        return _clipped(at, size)
    at, slope = _reflected(at, size, align)
    at, more = _clipped(at, size)
    return at, slope * more


def _lines(grid: Tensor, sizes: Sequence[Any], mode: int, padding: int, align: bool) -> list[tuple[Tensor, Any]]:
    """Per dimension, the places and their slope by the grid's coordinate."""
    results = []
    for k, size in enumerate(sizes):
        at, slope = _located(aten.select.int(grid, -1, len(sizes) - 1 - k), size, align)
        if mode != _BICUBIC:
            at, more = _padded(at, size, padding, align)
            slope = slope if more is None else more * slope
        results.append((at, slope))
    return results


def _cubic_slopes(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """The slopes of the weights by the place."""

    def far(x: Tensor) -> Tensor:
        return (3 * a * x - 10 * a) * x + 8 * a

    def near(x: Tensor) -> Tensor:
        return (3 * (a + 2) * x - 2 * (a + 3)) * x

    return [far(t + 1), near(t), aten.neg.default(near(1 - t)), aten.neg.default(far(2 - t))]


def _taps(places: Sequence[Tensor], mode: int) -> list[_Tap]:
    """The elements that a sample is made of: the nearest, two per dimension, or four."""
    if mode == _NEAREST:
        near = tuple(aten.round.default(p) for p in places)
        one = aten.full.default([], 1.0, dtype=near[0].dtype, device=near[0].device)
        return [_Tap(near, one, tuple(_zero(p) for p in near))]
    steps, weights, slopes = [], [], []
    for p in places:
        below = aten.floor.default(p)
        t = p - below
        one = aten.full.default([], 1.0, dtype=p.dtype, device=p.device)
        cubes = mode == _BICUBIC
        steps.append([below - 1, below, below + 1, below + 2] if cubes else [below, below + 1])
        weights.append(cubic(t) if cubes else [1 - t, t])
        slopes.append(_cubic_slopes(t) if cubes else [aten.neg.default(one), one])
    results = []
    for choice in product(range(4 if mode == _BICUBIC else 2), repeat=len(places)):
        chosen = [weights[k][i] for k, i in enumerate(choice)]
        results.append(
            _Tap(
                tuple(steps[k][i] for k, i in enumerate(choice)),
                prod(chosen[1:], start=chosen[0]),
                tuple(
                    prod([w for j, w in enumerate(chosen) if j != k], start=slopes[k][i]) for k, i in enumerate(choice)
                ),
            )
        )
    return results


def _element(tap: _Tap, sizes: Sequence[Any], mode: int, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """Where a tap's elements are in their plane, and whether they are in it."""
    flat = inside = None
    for p, size in zip(tap.places, sizes, strict=True):
        if mode == _BICUBIC:
            p, _ = _padded(p, size, padding, align)
        within = aten.bitwise_and.Tensor(aten.ge.Scalar(p, 0), aten.lt.Scalar(p, size))
        at = aten.where.self(within, p, _zero(p)).to(torch.int64)
        flat = at if flat is None else flat * size + at
        inside = within if inside is None else aten.bitwise_and.Tensor(inside, within)
    assert flat is not None and inside is not None
    return flat, inside


def _spread(places: Tensor, channels: Any) -> Tensor:
    """[N, *out] as [N, C, all of out]."""
    flat = aten.reshape.default(places, [places.shape[0], 1, prod(places.shape[1:])])
    return aten.expand.default(flat, [flat.shape[0], channels, flat.shape[2]])


def _read(x: Tensor, flat: Tensor, inside: Tensor) -> Tensor:
    """[N, C, plane] at [N, *out], 0 outside."""
    gathered = aten.gather.default(x, 2, _spread(flat, x.shape[1]))
    shaped = aten.view.default(gathered, [x.shape[0], x.shape[1], *flat.shape[1:]])
    return aten.where.self(aten.unsqueeze.default(inside, 1), shaped, _zero(shaped))


def _plane(x: Tensor) -> Tensor:
    return aten.reshape.default(x, [x.shape[0], x.shape[1], prod(x.shape[2:])])


def _shared(weight: Tensor) -> Tensor:
    """One weight for all channels."""
    return aten.unsqueeze.default(weight, 1) if weight.dim() else weight


_CLAUSES = (
    Clause(
        "The grid's last dimension has coordinates, the last dimension's first: -1 and 1 are the middles of the "
        "outermost elements with align_corners, else their outer edges.",
        parameters=("align_corners",),
    ),
    Clause(
        "Interpolation 0 is linear between the elements around, 1 takes the nearest, ties to even, 2 is cubic "
        "convolution with a = -0.75.",
        About.ZERO | About.HALFWAY,
    ),
    "Padding 0 reads 0 outside, 1 the outermost element, 2 reflects places at the borders that -1 and 1 stand for.",
    Clause("The result for a coordinate that is not finite is not specified.", About.NONFINITE | About.UNSPECIFIED),
    Clause("16-bit floats are computed in float32, and rounded once.", About.HALF | About.FLOAT32),
)


@family(
    "grid_sampler_2d",
    "grid_sampler_3d",
    "_grid_sampler_2d_cpu_fallback",
    clauses=_CLAUSES,
    tags=_TAGS,
    libraries=(
        Library(
            (
                "grid_sampler_2d",
                "grid_sampler_3d",
            )
        ),
    ),
)
def grid_sampler(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Samples of images or volumes at the places of a grid."""
    sizes, flat = x.shape[2:], _plane(accurate(x))
    lines = _lines(accurate(grid), sizes, interpolation_mode, padding_mode, align_corners)
    out: Tensor | None = None
    for tap in _taps([at for at, _ in lines], interpolation_mode):
        where, inside = _element(tap, sizes, interpolation_mode, padding_mode, align_corners)
        value = _read(flat, where, inside)
        value = value if interpolation_mode == _NEAREST else value * _shared(tap.weight)
        out = value if out is None else out + value
    assert out is not None
    return out.to(x.dtype)


@family(
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "_grid_sampler_2d_cpu_fallback_backward",
    clauses=(
        "Each gradient is added to the elements that its sample was made of, times their weights, in no "
        "specified order.",
        "The gradient of the grid is that of the weights by the place, times the place's by the coordinate, which is 0 "
        "where padding holds a place at the border, and changes its sign with each reflection; of the nearest it is 0.",
        "Where the input's output_mask is False its gradient is None.",
    ),
    tags=_TAGS | UNORDERED,
    libraries=(
        Library(
            (
                "grid_sampler_2d_backward",
                "grid_sampler_3d_backward",
            )
        ),
    ),
    cuda=NARROW_SUMS,
)
def grid_sampler_backward(
    grad: Tensor,
    x: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool] = (True, True),
) -> tuple[Any, Any]:
    """Gradients with respect to the input and the grid."""
    sizes, flat, g = x.shape[2:], _plane(accurate(x)), accurate(grad)
    lines = _lines(accurate(grid), sizes, interpolation_mode, padding_mode, align_corners)
    dx = aten.full.default(list(flat.shape), 0.0, dtype=flat.dtype, device=x.device)
    slopes: list[Tensor | None] = [None] * len(sizes)
    for tap in _taps([at for at, _ in lines], interpolation_mode):
        where, inside = _element(tap, sizes, interpolation_mode, padding_mode, align_corners)
        share = aten.where.self(aten.unsqueeze.default(inside, 1), g * _shared(tap.weight), _zero(g))
        if output_mask[0]:
            dx = aten.scatter_add.default(dx, 2, _spread(where, x.shape[1]), _plane(share))
        if interpolation_mode != _NEAREST:
            felt = aten.sum.dim_IntList(_read(flat, where, inside) * g, [1])
            for k, slope in enumerate(tap.slopes):
                one = felt * slope
                slopes[k] = one if (so_far := slopes[k]) is None else so_far + one
    if interpolation_mode == _NEAREST:
        dgrid = aten.full.default(list(grid.shape), 0.0, dtype=grid.dtype, device=grid.device)
    else:
        stacked = aten.stack.default(
            [s * by for s, (_, by) in zip(slopes[::-1], lines[::-1], strict=True) if s is not None], -1
        )
        dgrid = aten.view.default(stacked, list(grid.shape)).to(grid.dtype)
    return aten.view.default(dx, list(x.shape)).to(x.dtype) if output_mask[0] else None, dgrid


@family(
    "affine_grid_generator",
    tags=_TAGS,
    clauses=(
        "Row i of theta gives coordinate i, as theta times (x, y, 1), or (x, y, z, 1).",
        Clause(
            "-1 and 1 are the middles of the outermost elements with align_corners, else their outer edges; of one "
            "element it is 0.",
            parameters=("align_corners",),
        ),
    ),
)
def affine_grid_generator(theta: Tensor, size: Sequence[Any], align_corners: bool) -> Tensor:
    """The grid of places that an affine map of the result's coordinates gives."""
    sizes, maps = list(size[2:]), accurate(theta)
    rank = len(sizes)

    def coefficient(k: int) -> Tensor:
        result: Tensor = aten.view.default(aten.select.int(maps, 2, k), [theta.shape[0], *[1] * rank, rank])
        return result

    grid = coefficient(rank)
    for d, n in enumerate(sizes):
        line = aten.view.default(_middles(n, align_corners, grid), [n if k == d else 1 for k in range(rank)] + [1])
        grid = grid + line * coefficient(rank - 1 - d)
    shape = [theta.shape[0], *sizes, rank]
    return aten.clone.default(aten.expand.default(grid, shape), memory_format=torch.contiguous_format).to(theta.dtype)


def _middles(n: Any, align: bool, like: Tensor) -> Tensor:
    """The coordinates of the middles of n elements in a row. Numerators are whole, so each is rounded once."""
    twice = 2 * aten.arange.default(n, dtype=like.dtype, device=like.device) - (n - 1)
    return twice / ((n - 1 if n > 1 else 1) if align else n)
