"""Resampling of the last one to three dimensions, dimension by dimension, and the gradients as its adjoint.

An element of the result is a weighted sum of a few elements of the argument along each dimension; places and weights
follow ATen/native/UpSample.h, in float32 unless the argument is float64. Eager on CPU has two exceptions, which other
devices have not and Keel does not follow: to the nearest element, gradients and images that double ignore a scale that
says otherwise; and of uint8, cubic convolution is cut to its range after each dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import UNORDERED, Family
from keel.spec.ops.taps import along, count, read
from keel.spec.pytorch_kernels import AS_SPECIFIED, EVERY_DEVICE, NARROW_SUMS, Library

aten = torch.ops.aten
family = Family("resampling")

Tensor = torch.Tensor
Sizes = Sequence[Any]
_TAGS = frozenset({"resampling"})
_RATIO = Clause(
    "The ratio is (size - 1) / (outs - 1) with align_corners, else 1 / scale if a scale is given, else "
    "size / outs; it and the places are computed in float32 unless the argument is float64.",
    About.FLOAT32,
    parameters=("align_corners",),
)


@dataclass(frozen=True)
class _Line:
    """One dimension: its sizes before and after, and how they are mapped."""

    size: Any
    outs: Any
    align: bool
    scale: Any
    dtype: torch.dtype

    @property
    def ratio(self) -> Any:
        if self.align:
            return (self.size - 1) / (self.outs - 1) if self.outs > 1 else 0.0
        return 1.0 / self.scale if self.scale else self.size / self.outs


Taps = tuple[Tensor, Tensor, Tensor | None]
"""Places [outs, taps], weights [outs, taps], which of them count (None: all)."""
Weigh = Callable[[_Line, Tensor], Taps]


def _ready(x: Tensor) -> Tensor:
    """In the dtype that is computed in."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _stored(out: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return out.to(dtype)
    facts = torch.iinfo(dtype)
    return aten.clamp.default(aten.round.default(out), facts.min, facts.max).to(dtype)


def _lines(sizes: Sizes, outs: Sizes, align: bool, scales: Sizes, dtype: torch.dtype) -> list[_Line]:
    all_scales = [*scales, *[None] * (len(sizes) - len(scales))]
    return [_Line(n, o, align, s, dtype) for n, o, s in zip(sizes, outs, all_scales, strict=True)]


def _resample(x: Tensor, outs: Sizes, align: bool, scales: Sizes, weigh: Weigh) -> Tensor:
    n = len(outs)
    out = _ready(x)
    for d, line in reversed(list(enumerate(_lines(x.shape[-n:], outs, align, scales, out.dtype), x.dim() - n))):
        places, weights, inside = weigh(line, out)
        values = read(out, d, places) * along(weights, d, out.dim() + 1)
        if inside is not None:
            values = aten.where.self(along(inside, d, values.dim()), values, _zero(values))
        out = aten.sum.dim_IntList(values, [d + 1])
    return _stored(out, x.dtype)


def _adjoint(grad: Tensor, sizes: Sizes, align: bool, scales: Sizes, weigh: Weigh) -> Tensor:
    """What _resample does to its argument, transposed."""
    n = grad.dim() - 2
    out = _ready(grad)
    for d, line in enumerate(_lines(sizes[-n:], grad.shape[-n:], align, scales, out.dtype), 2):
        places, weights, inside = weigh(line, out)
        shares = aten.unsqueeze.default(out, d + 1) * along(weights, d, out.dim() + 1)
        if inside is not None:
            shares = aten.where.self(along(inside, d, shares.dim()), shares, _zero(shares))
        out = _gathered(shares, d, places, line.size)
    return out.to(grad.dtype)


def _gathered(shares: Tensor, dim: int, places: Tensor, size: Any) -> Tensor:
    """Zeros with ``shares`` added at ``places``, which stand for the dimensions from ``dim`` on."""
    rest = shares.shape[dim + places.dim() :]
    zeros = aten.full.default([*shares.shape[:dim], size, *rest], 0, dtype=shares.dtype, device=shares.device)
    return aten.index_put.default(zeros, [None] * dim + [places], shares, True)


def _zero(like: Tensor) -> Tensor:
    return aten.full.default([], 0.0, dtype=like.dtype, device=like.device)


# -- the nearest element ----------------------------------------------------------------------------------------------


def _nearest(line: _Line, like: Tensor, centered: bool) -> Tensor:
    """The place of each result, in float32 whatever the argument."""
    o = count(line.outs, like).to(torch.float32)
    result = ((o + 0.5 if centered else o) * line.ratio).to(torch.int64)
    return aten.clamp_max.default(result, line.size - 1)


def _places(sizes: Sizes, outs: Sizes, scales: Sizes, x: Tensor, centered: bool) -> list[Tensor]:
    """The places of each dimension, shaped to be broadcast."""
    lines = _lines(sizes, outs, False, scales, x.dtype)
    return [along(_nearest(line, x, centered), k, len(lines)) for k, line in enumerate(lines)]


def _nearest_pair(centered: bool) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def forward(x: Tensor, output_size: Sizes, *scales: Any) -> Tensor:
        """Every element of the result is the argument's nearest."""
        n = len(output_size)
        places = _places(x.shape[-n:], output_size, scales, x, centered)
        return aten.index.Tensor(x, [None] * (x.dim() - n) + places)

    def backward(grad: Tensor, output_size: Sizes, input_size: Sizes, *scales: Any) -> Tensor:
        """Every element has the sum of the gradients of its copies."""
        value, n = _ready(grad), len(output_size)
        places = _places(input_size[-n:], output_size, scales, grad, centered)
        zeros = aten.full.default(list(input_size), 0, dtype=value.dtype, device=grad.device)
        return aten.index_put.default(zeros, [None] * (grad.dim() - n) + places, value, True).to(grad.dtype)

    return forward, backward


for _name, _at, _centered in (
    ("upsample_nearest", "floor(o * ratio)", False),
    ("upsample_nearest_exact", "floor((o + 1/2) * ratio)", True),
):
    _rule = (
        f"Element o of a dimension is the argument's at {_at}, at most its last; the ratio is 1 / scale if a "
        "scale is given, else size / outs.",
        Clause("The place is computed in float32.", About.FLOAT32),
    )
    _overloads = [f"{'_' * _centered}{_name}{{}}d{{}}".format(n, "{}") for n in (1, 2, 3)]
    _forward, _backward = _nearest_pair(_centered)
    family(*(o.format("") for o in _overloads), name=_name, clauses=_rule, tags=_TAGS)(_forward)
    family(
        *(o.format("_backward") for o in _overloads),
        name=f"{_name}_backward",
        tags=_TAGS | UNORDERED,
        clauses=(
            *_rule,
            "Each gradient is added at the place that its element was read from, in no specified order.",
        ),
        libraries=(Library(before_loops=False),),
    )(_backward)


# -- weighted sums ----------------------------------------------------------------------------------------------------


def _source(line: _Line, like: Tensor) -> Tensor:
    """Where each result lies among the argument's elements."""
    o = count(line.outs, like).to(line.dtype)
    return o * line.ratio if line.align else (o + 0.5) * line.ratio - 0.5


def _linear(line: _Line, like: Tensor) -> Taps:
    at = aten.clamp_min.default(_source(line, like), 0)
    below = aten.clamp_max.default(at.to(torch.int64), line.size - 1)
    above = aten.clamp_max.default(below + 1, line.size - 1)
    part = aten.clamp.default(at - below, 0, 1)
    return aten.stack.default([below, above], 1), aten.stack.default([1 - part, part], 1), None


def cubic(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """The weights of the four elements around a place, ``t`` beyond the second: Keys' cubic convolution (1981), in
    factors, so that no digits are lost: as sums of powers they cancel where weights are small.
    """
    u = 1 - t
    return [a * t * u * u, _keys_near(t, u, a), _keys_near(u, t, a), a * u * t * t]


def _keys_near(x: Tensor, rest: Tensor, a: float) -> Tensor:
    """(a + 2) x^3 - (a + 3) x^2 + 1 for ``rest`` = 1 - x."""
    return rest * (1 + x - (a + 2) * x * x)


def _cubic(line: _Line, like: Tensor) -> Taps:
    at = _source(line, like)
    below = aten.floor.default(at)
    steps = aten.unsqueeze.default(below.to(torch.int64), 1) + count(4, like) - 1
    return aten.clamp.default(steps, 0, line.size - 1), aten.stack.default(cubic(at - below), 1), None


def _smooth(interp: int, window: Callable[[Tensor], Tensor]) -> Weigh:
    """``window`` stretched over as many elements as a result stands for, its weights adding up to 1."""

    def weigh(line: _Line, like: Tensor) -> Taps:
        stretch = torch.sym_max(line.ratio, 1.0)
        support = interp * 0.5 * stretch
        middle = aten.unsqueeze.default(count(line.outs, like).to(line.dtype) + 0.5, 1)
        center = middle * line.ratio
        first = aten.clamp_min.default((center - support + 0.5).to(torch.int64), 0)
        after = aten.clamp_max.default((center + support + 0.5).to(torch.int64), line.size)
        places = first + count(_most(interp, line), like)
        inside = aten.lt.Tensor(places, after)
        # Near its center a window's digits are those of a difference, so the product is not rounded before it.
        one = aten.full_like.default(middle, 1)
        distance = aten.addcmul.default(places.to(line.dtype) + 0.5, one, middle, value=-line.ratio)
        weights = window(distance * (1.0 / stretch))
        weights = aten.where.self(inside, weights, _zero(weights))
        total = aten.sum.dim_IntList(weights, [1], True)
        total = aten.masked_fill.Scalar(total, aten.eq.Scalar(total, 0), 1)
        return aten.clamp_max.default(places, line.size - 1), weights / total, inside

    return weigh


def _most(interp: int, line: _Line) -> Any:
    """No result has more taps."""
    if line.scale and not line.align:
        return ceil(interp * 0.5 * max(1.0 / line.scale, 1.0)) * 2 + 1
    less = 1 if line.align else 0
    steps = line.outs - less if line.outs > 1 else 1
    return interp * ((line.size - less + steps - 1) // steps + less) + 2


def _triangle(x: Tensor) -> Tensor:
    return aten.clamp_min.default(1 - aten.abs.default(x), 0)


def _keys(x: Tensor, a: float = -0.5) -> Tensor:
    x = aten.abs.default(x)
    near = _keys_near(x, 1 - x, a)
    far = a * (x - 1) * (x - 2) * (x - 2)
    far = aten.where.self(aten.lt.Scalar(x, 2), far, _zero(x))
    return aten.where.self(aten.lt.Scalar(x, 1), near, far)


def _lanczos(x: Tensor) -> Tensor:
    value = aten.sinc.default(x) * aten.sinc.default(x / 3)
    inside = aten.bitwise_and.Tensor(aten.ge.Scalar(x, -3), aten.lt.Scalar(x, 3))
    return aten.where.self(inside, value, _zero(x))


def _weighted_pair(weigh: Weigh) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def forward(x: Tensor, output_size: Sizes, align_corners: bool, *scales: Any) -> Tensor:
        return _resample(x, output_size, align_corners, scales, weigh)

    def backward(grad: Tensor, output_size: Sizes, input_size: Sizes, align_corners: bool, *scales: Any) -> Tensor:
        return _adjoint(grad, input_size, align_corners, scales, weigh)

    return forward, backward


_INTERPOLATED = (
    _RATIO,
    Clause(
        "Dimensions are interpolated one after another; 16-bit floats in float32, rounded once.",
        About.HALF | About.FLOAT32,
    ),
    Clause("For uint8, the result is within 1 of the rounded one.", About.UINT8),
)


def _between(elements: str) -> tuple[Clause, ...]:
    place = f"Element o lies at o * ratio with align_corners, else at (o + 1/2) * ratio - 1/2{elements}"
    return Clause(place, parameters=("align_corners",)), *_INTERPOLATED


def _filtered(window: str) -> tuple[Clause, ...]:
    weights = (
        "A result's weights are the window's at the distances of elements' middles from its own, (o + 1/2) * "
        f"ratio, divided by max(ratio, 1), and their sum is 1; the window is {window}."
    )
    return Clause(weights), *_INTERPOLATED


for _name, _overloads, _weigh, _doc, _clauses, _libraries in (
    (
        "upsample_linear",
        ["upsample_linear1d{}", "upsample_bilinear2d{}", "upsample_trilinear3d{}"],
        _linear,
        "Linear interpolation.",
        _between(", at least 0: between the two elements around it."),
        ((), EVERY_DEVICE),
    ),
    (
        "upsample_cubic",
        ["upsample_bicubic2d{}"],
        _cubic,
        "Cubic convolution with a = -0.75.",
        _between(", between the four elements around it; the outermost stand for those outside."),
        (EVERY_DEVICE, EVERY_DEVICE),
    ),
    (
        "upsample_linear_aa",
        ["_upsample_bilinear2d_aa{}"],
        _smooth(2, _triangle),
        "Linear interpolation that averages where it shrinks.",
        _filtered("max(1 - |x|, 0)"),
        ((), ()),
    ),
    (
        "upsample_cubic_aa",
        ["_upsample_bicubic2d_aa{}"],
        _smooth(4, _keys),
        "Cubic convolution with a = -0.5 that averages where it shrinks.",
        _filtered("Keys' cubic"),
        ((), ()),
    ),
    (
        "upsample_lanczos_aa",
        ["_upsample_lanczos2d_aa{}"],
        _smooth(6, _lanczos),
        "Lanczos interpolation that averages where it shrinks.",
        _filtered("sinc(x) sinc(x / 3) in [-3, 3)"),
        ((), ()),
    ),
):
    _forward, _backward = _weighted_pair(_weigh)
    _forward.__doc__, _backward.__doc__ = _doc, f"The gradient of {_name} with respect to its input."
    family(*(o.format("") for o in _overloads), name=_name, clauses=_clauses, tags=_TAGS, libraries=_libraries[0])(
        _forward
    )
    family(
        *(o.format("_backward") for o in _overloads),
        name=f"{_name}_backward",
        tags=_TAGS | UNORDERED,
        clauses=(
            "Each gradient is added to the elements that its result was made of, times their weights, in no specified "
            "order.",
            Clause("16-bit floats are added in float32 or better, and rounded once.", About.HALF | About.FLOAT32),
        ),
        libraries=_libraries[1],
        cuda=NARROW_SUMS if _libraries[1] else AS_SPECIFIED,
    )(_backward)


# -- elements in another order ----------------------------------------------------------------------------------------

family.composite(
    "pixel_shuffle",
    "pixel_shuffle",
    doc="Blocks of channels as blocks of pixels.",
    clauses=("Channel c * r * r + i * r + j at (h, w) goes to channel c at (h * r + i, w * r + j).",),
    tags=_TAGS,
)
family.composite(
    "pixel_unshuffle",
    "pixel_unshuffle",
    doc="The inverse of pixel_shuffle.",
    clauses=("Pixel (h * r + i, w * r + j) of channel c goes to channel c * r * r + i * r + j at (h, w).",),
    tags=_TAGS,
)
family.composite(
    "channel_shuffle",
    "channel_shuffle",
    doc="Channels in groups, transposed.",
    clauses=("Channel g * n + i of `groups` groups of n goes to i * groups + g.",),
    tags=_TAGS,
)
