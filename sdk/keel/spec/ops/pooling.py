"""Pooling: averages and maxima over windows of the last two or three dimensions, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import FLOATS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import UNORDERED, Budget, Family, Requires, Sample
from keel.spec.ops.statistics import accurate
from keel.spec.ops.taps import adaptive, along, count, floordiv, longest, read
from keel.spec.pytorch_kernels import AS_SPECIFIED, EVERY_DEVICE, NARROW_SUMS, Images, Library
from keel.spec.rules import DENSE, INT64, Out, like, shape_of
from keel.spec.rules_windows import as_image, pooled
from keel.spec.samples import INF, NAN, drawn
from keel.types import TensorType

aten = torch.ops.aten
family = Family("pooling")

Tensor = torch.Tensor
Sizes = Sequence[Any]
SAME = like("self")
_TAGS = frozenset({"pooling"})


# -- averages and maxima over windows of one size ---------------------------------------------------------------------


def _windows(n: int) -> Iterator[tuple[list[int], list[int], list[int], bool]]:
    """kernel, stride, padding, ceil_mode"""
    yield [2] * n, [], [0] * n, False
    yield [3] * n, [2] * n, [1] * n, False
    yield [3] * n, [2] * n, [1] * n, True
    yield [3, 2, 2][:n], [1, 2, 3][:n], [1, 0, 1][:n], False
    yield [2], [1], [0], False


def _images(n: int, dtype: torch.dtype) -> Iterator[Tensor]:
    sizes = (7, 8, 6)[:n]
    yield drawn(dtype, 2, 3, *sizes, seed=1)
    yield drawn(dtype, 3, *sizes, seed=2)
    last = torch.channels_last if n == 2 else torch.channels_last_3d
    yield drawn(dtype, 2, 3, *sizes, seed=3).to(memory_format=last)
    yield drawn(dtype, 0, 3, *sizes)


def _average_samples(n: int) -> Any:
    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for x in _images(n, dtype):
            for kernel, stride, padding, ceil in _windows(n):
                yield Sample((x, kernel, stride, padding, ceil))
            yield Sample((x, [3] * n, [2] * n, [1] * n, False, False))
            yield Sample((x, [3] * n, [2] * n, [1] * n, False, True, 5))
        if dtype.is_floating_point:
            yield Sample((_special(n, dtype), [2] * n, [1] * n, [1] * n, False, True))

    return samples


def _special(n: int, dtype: torch.dtype) -> Tensor:
    x = drawn(dtype, 1, 1, *[5] * n, seed=9)
    x.view(-1)[3], x.view(-1)[-1], x.view(-1)[9] = NAN, INF, -INF
    return x


def _average_backward_samples(n: int) -> Any:
    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        def gradient(x: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, ceil: bool, seed: int) -> Tensor:
            shape = pooled(n).of(
                {
                    "self": TensorType.dense(dtype, x.shape),
                    "kernel_size": kernel,
                    "stride": stride,
                    "padding": padding,
                    "ceil_mode": ceil,
                }
            )
            return drawn(dtype, *map(int, shape), seed=seed)

        for x in _images(n, dtype):
            for window in _windows(n):
                yield Sample((gradient(x, *window, 4), x, *window, False, None))
            window = ([3] * n, [2] * n, [1] * n, False)
            yield Sample((gradient(x, *window, 5), x, *window, True, 5))

    return samples


def _max_samples(n: int) -> Any:
    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for x in _images(n, dtype):
            for kernel, stride, padding, ceil in _windows(n):
                yield Sample((x, kernel, stride, padding, [1] * n, ceil))
            yield Sample((x, [2] * n, [1] * n, [1] * n, [2] * n))
        if dtype.is_floating_point:
            yield Sample((_special(n, dtype), [2] * n, [1] * n, [1] * n))
        yield Sample((torch.zeros(1, 1, *[4] * n, dtype=dtype), [2] * n))

    return samples


_AVERAGE = (
    "The sum over a window is divided by divisor_override, else by the window's elements; those in the padding count "
    "only under count_include_pad, and those beyond it never.",
    "Padding adds 0.",
    Clause("An infinity or NaN in a window makes its average one of these.", About.NONFINITE),
    Clause("16-bit floats are summed in float32 or better, and rounded once.", About.HALF | About.FLOAT32),
)
_MAXIMUM = (
    "The result is the largest element of each window; padding never wins.",
    Clause("Equal elements: the first, in row-major order of the window, has the index.", About.TIES),
    Clause("A window with a NaN gives NaN, and the place of one of its NaNs.", About.NONFINITE),
    "Indices count row-major in the plane of the last dimensions, without padding.",
)
_HALF = Requires(
    "padding-at-most-half",
    "padding is at most half the kernel.",
    lambda args: all(2 * p <= k for p, k in zip(_pair(args["padding"]), _pair(args["kernel_size"]), strict=True)),
)


def _pair(values: Any) -> list[Any]:
    listed = list(values) if isinstance(values, list | tuple) else [values]
    return listed * 3 if len(listed) == 1 else [*listed, *listed[: 3 - len(listed)]]


for _n in (2, 3):
    _image = as_image("self", ranks=(4,)) if _n == 2 else DENSE
    family.primitive(
        f"avg_pool{_n}d",
        f"avg_pool{_n}d",
        doc=f"Averages over windows of the last {_n} dimensions.",
        clauses=_AVERAGE,
        out=(Out(SAME, pooled(_n), _image),),
        dtypes=(*FLOATS, torch.int64),
        samples=_average_samples(_n),
        requires=(_HALF,),
        tags=_TAGS,
        budget={d: Budget(times=2.0) for d in FLOATS} | {torch.int64: Budget(ulps=0)},
    )
    family.primitive(
        f"avg_pool{_n}d_backward",
        f"avg_pool{_n}d_backward",
        doc=f"The gradient of avg_pool{_n}d with respect to its input.",
        clauses=(
            "Each element is the sum of its share, grad over the divisor, in every window that it lies in.",
            Clause("16-bit floats are summed in float32 or better, and rounded once.", About.HALF | About.FLOAT32),
        ),
        out=(Out(SAME, shape_of("self"), _image),),
        dtypes=FLOATS,
        samples=_average_backward_samples(_n),
        requires=(_HALF,),
        budget={d: Budget(times=2.0) for d in FLOATS},
        tags=_TAGS,
    )
    _image = as_image("self")
    family.primitive(
        f"max_pool{_n}d_with_indices",
        f"max_pool{_n}d_with_indices",
        doc=f"The largest element of each window of the last {_n} dimensions, and where it is.",
        clauses=_MAXIMUM,
        out=(Out(SAME, pooled(_n), _image), Out(INT64, pooled(_n), _image)),
        dtypes=(*FLOATS, torch.int64),
        samples=_max_samples(_n),
        requires=(_HALF,),
        tags=_TAGS,
        budget={d: Budget(ulps=0) for d in (*FLOATS, torch.int64)},
        numerics=Numerics(results=Results.CHOSEN),
        row_major=_n == 3,
    )


# -- planes -----------------------------------------------------------------------------------------------------------


def _plane(x: Tensor, n: int) -> Tensor:
    """The last ``n`` dimensions as one."""
    return aten.reshape.default(x, [*x.shape[:-n], prod(x.shape[-n:])])


def _put(values: Tensor, places: Tensor, shape: Sizes, n: int) -> Tensor:
    """Zeros of sizes ``shape`` with ``values`` added at ``places`` in the plane of the last ``n`` dimensions."""
    value = accurate(values)
    zeros = aten.full.default([*shape[:-n], prod(shape[-n:])], 0, dtype=value.dtype, device=values.device)
    put = aten.scatter_add.default(zeros, zeros.dim() - 1, _plane(places, n), _plane(value, n))
    return aten.view.default(put, list(shape)).to(values.dtype)


def _unpooled(n: int, maximum: str) -> Any:
    def backward(grad: Tensor, x: Tensor, *rest: Any, indices: Tensor | None = None) -> Tensor:
        places = indices if indices is not None else rest[-1]
        return _put(grad, places, x.shape, n)

    backward.__doc__ = f"The gradient of {maximum} with respect to its input."
    return backward


_GRADIENT_CLAUSES = (
    "Each gradient is added at the index of its window's largest element, in no specified order; all else is 0.",
)
_IMAGES = (Library(channels_last=Images((0, 1, 7), (0,), dtypes=frozenset({*FLOATS, torch.int64}))),)
for _n in (2, 3):
    for _name, _libraries, _cuda, _row_major in (
        (
            f"max_pool{_n}d_with_indices",
            _IMAGES if _n == 2 else EVERY_DEVICE,
            AS_SPECIFIED if _n == 2 else NARROW_SUMS,
            _n == 3,
        ),
        (f"adaptive_max_pool{_n}d", EVERY_DEVICE, NARROW_SUMS, _n == 3),
        (f"fractional_max_pool{_n}d", (), AS_SPECIFIED, True),
    ):
        family(
            f"{_name}_backward",
            clauses=_GRADIENT_CLAUSES,
            name=f"{_name}_backward",
            tags=_TAGS | UNORDERED,
            libraries=_libraries,
            cuda=_cuda,
            row_major=_row_major,
        )(_unpooled(_n, _name))


def _unpool(n: int) -> Any:
    def decompose(x: Tensor, indices: Tensor, output_size: Sizes, stride: Sizes = (), padding: Sizes = ()) -> Tensor:
        shape = [*x.shape[:-n], *output_size]
        zeros = aten.full.default([*x.shape[:-n], prod(output_size)], 0, dtype=x.dtype, device=x.device)
        put = aten.scatter.src(zeros, zeros.dim() - 1, _plane(indices, n), _plane(x, n))
        return aten.view.default(put, shape)

    decompose.__doc__ = f"Every element at its index in the plane of the last {n} dimensions."
    return decompose


for _n in (2, 3):
    family(
        f"max_unpool{_n}d",
        name=f"max_unpool{_n}d",
        tags=_TAGS,
        clauses=(
            "Every element is put at its index in a plane of output_size; all else is 0.",
            "Among several elements with one index, one is kept.",
            "An index outside the plane is an error.",
        ),
    )(_unpool(_n))


# -- windows by the size of the result --------------------------------------------------------------------------------

_ADAPTIVE = "Window o of outs over a size spans floor(o * size / outs) to ceil((o + 1) * size / outs)."


def _adaptive_average(n: int) -> Any:
    pool = getattr(aten, f"avg_pool{n}d").default

    def decompose(x: Tensor, output_size: Sizes) -> Tensor:
        sizes = x.shape[-n:]
        if all(isinstance(v, int) and v > 0 for v in (*sizes, *output_size)) and all(
            s % o == 0 for s, o in zip(sizes, output_size, strict=True)
        ):
            value = accurate(x) if n == 3 else x  # of 16-bit floats, eager on CPU has two dimensions only
            return pool(value, [s // o for s, o in zip(sizes, output_size, strict=True)]).to(x.dtype)
        out = accurate(x)
        first = x.dim() - n
        for d, (size, outs) in enumerate(zip(sizes, output_size, strict=True), first):
            start, end = adaptive(size, outs, x)
            places = aten.unsqueeze.default(start, 1) + count(longest(size, outs), x)
            inside = aten.lt.Tensor(places, aten.unsqueeze.default(end, 1))
            out = _total(out, d, aten.clamp_max.default(places, size - 1), inside)
            out = out / along((end - start).to(out.dtype), d, out.dim())
        return out.to(x.dtype)

    decompose.__doc__ = f"Averages over as many windows of the last {n} dimensions as asked for."
    return decompose


def _total(x: Tensor, dim: int, places: Tensor, inside: Tensor) -> Tensor:
    """The sum of ``x`` along ``dim`` over those of ``places`` that are ``inside``."""
    read_values = read(x, dim, places)
    zero = aten.full.default([], 0.0, dtype=x.dtype, device=x.device)
    return aten.sum.dim_IntList(aten.where.self(along(inside, dim, read_values.dim()), read_values, zero), [dim + 1])


def _adaptive_average_backward(n: int) -> Any:
    def decompose(grad: Tensor, x: Tensor) -> Tensor:
        out = accurate(grad)
        for d in range(x.dim() - n, x.dim()):
            size, outs = x.shape[d], grad.shape[d]
            start, end = adaptive(size, outs, grad)
            out = out / along((end - start).to(out.dtype), d, out.dim())
            own = aten.unsqueeze.default(count(size, x), 1)
            windows = floordiv(own * outs, size) + count(longest(outs, size), x)
            within = aten.clamp_max.default(windows, outs - 1)
            inside = aten.bitwise_and.Tensor(aten.lt.Scalar(windows, outs), aten.le.Tensor(read(start, 0, within), own))
            out = _total(out, d, within, inside)
        return out.to(x.dtype)

    decompose.__doc__ = f"The gradient of adaptive_avg_pool{n}d with respect to its input."
    return decompose


def _adaptive_maximum(n: int) -> Any:
    def decompose(x: Tensor, output_size: Sizes) -> tuple[Tensor, Tensor]:
        first, sizes, values = x.dim() - n, x.shape[-n:], x
        lowest = aten.full.default([], float("-inf"), dtype=x.dtype, device=x.device)
        place: Tensor | None = None
        for k, (size, outs) in enumerate(zip(sizes, output_size, strict=True)):
            start, end = adaptive(size, outs, x)
            places = aten.unsqueeze.default(start, 1) + count(longest(size, outs), x)
            inside, d = aten.lt.Tensor(places, aten.unsqueeze.default(end, 1)), first + 2 * k
            within = aten.clamp_max.default(places, size - 1)
            values = read(values, d, within)
            values = aten.where.self(along(inside, d, values.dim()), values, lowest)
            here = along(within, 2 * k, 2 * n)
            place = here if place is None else place * size + here
        assert place is not None
        return _chosen(_taps_last(values, n), _taps_last(place, n))

    decompose.__doc__ = f"The largest element of each of as many windows of the last {n} dimensions as asked for."
    return decompose


def _taps_last(x: Tensor, n: int) -> Tensor:
    """[..., out, taps, out, taps] as [..., out, out, taps * taps]."""
    first = x.dim() - 2 * n
    order = [*range(first), *range(first, x.dim(), 2), *range(first + 1, x.dim(), 2)]
    moved = aten.permute.default(x, order)
    return aten.reshape.default(moved, [*moved.shape[: first + n], prod(moved.shape[first + n :])])


def _chosen(windows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of the last dimension, and its place."""
    best, which = aten.max.dim(windows, windows.dim() - 1)
    places = aten.expand.default(places, list(windows.shape))
    result = aten.gather.default(places, windows.dim() - 1, aten.unsqueeze.default(which, windows.dim() - 1))
    return best, aten.squeeze.dim(result, windows.dim() - 1)


for _n in (2, 3):
    family(
        f"_adaptive_avg_pool{_n}d",
        name=f"adaptive_avg_pool{_n}d",
        clauses=(_ADAPTIVE, "The result is the average of each window."),
        tags=_TAGS,
    )(_adaptive_average(_n))
    family(
        f"_adaptive_avg_pool{_n}d_backward",
        name=f"adaptive_avg_pool{_n}d_backward",
        clauses=(
            _ADAPTIVE,
            "Each element is the sum of its share, grad over the window's elements, in every window that it lies in.",
        ),
        tags=_TAGS,
    )(_adaptive_average_backward(_n))
    family(f"adaptive_max_pool{_n}d", name=f"adaptive_max_pool{_n}d", clauses=(_ADAPTIVE, *_MAXIMUM), tags=_TAGS)(
        _adaptive_maximum(_n)
    )


# -- windows at random ------------------------------------------------------------------------------------------------


def _fractional(n: int) -> Any:
    order = range(n) if n == 3 else (1, 0)  # eager's samples of two dimensions are width, height

    def decompose(x: Tensor, kernel_size: Sizes, output_size: Sizes, random_samples: Tensor) -> tuple[Tensor, Tensor]:
        lone = x.dim() == n + 1
        images = aten.unsqueeze.default(x, 0) if lone else x
        batch, channels, sizes = images.shape[0], images.shape[1], images.shape[2:]
        place: Tensor | None = None
        for k, (size, outs, taps) in enumerate(zip(sizes, output_size, kernel_size, strict=True)):
            sample = aten.select.int(random_samples, 2, order[k])
            starts = _starts(sample, size, outs, taps)  # [batch, channels, outs]
            at = aten.unsqueeze.default(starts, 3) + count(taps, x)
            shape = [batch, channels, *[1] * (2 * n)]
            shape[2 + k], shape[2 + n + k] = outs, taps
            at = aten.view.default(at, shape)
            place = at if place is None else place * size + at
        assert place is not None
        flat = aten.reshape.default(place, [batch, channels, prod(output_size) * prod(kernel_size)])
        shape = [batch, channels, *output_size, prod(kernel_size)]
        values = aten.view.default(aten.gather.default(_plane(images, n), 2, flat), shape)
        best, result = _chosen(values, aten.view.default(flat, shape))
        return (aten.squeeze.dim(best, 0), aten.squeeze.dim(result, 0)) if lone else (best, result)

    decompose.__doc__ = (
        f"The largest element of each of as many windows of the last {n} dimensions as asked for, at random places."
    )
    return decompose


def _starts(sample: Tensor, size: Any, outs: Any, taps: Any) -> Tensor:
    """Where windows begin, in arithmetic of the samples' dtype: trunc((o + u) alpha) - trunc(u alpha), the last at the
    end, with alpha = (size - taps) / (outs - 1).
    """

    def number(value: Any) -> Tensor:
        return aten.full.default([], value, dtype=sample.dtype, device=sample.device)

    u, o = aten.unsqueeze.default(sample, 2), count(outs, sample)
    last = aten.eq.Scalar(o, outs - 1)
    alpha = number(size - taps) / aten.clamp_min.default(number(outs - 1), 1)
    result = ((o.to(sample.dtype) + u) * alpha).to(torch.int64) - (u * alpha).to(torch.int64)
    return aten.where.self(last, aten.full.default([], size - taps, dtype=torch.int64, device=sample.device), result)


for _n in (2, 3):
    family(
        f"fractional_max_pool{_n}d",
        name=f"fractional_max_pool{_n}d",
        clauses=(
            "With u the plane's sample for a dimension (of two dimensions, the first sample is the width's) "
            "and alpha = "
            "(size - kernel) / (outs - 1), window o begins at trunc((o + u) alpha) - trunc(u alpha), the last "
            "at size - "
            "kernel.",
            "That arithmetic is done in the samples' dtype.",
            *_MAXIMUM,
        ),
        tags=_TAGS,
    )(_fractional(_n))


# -- windows as columns -----------------------------------------------------------------------------------------------

family.composite(
    "im2col",
    "im2col",
    doc="Every window of an image as a column.",
    clauses=("Column o holds window o, channels first, then the kernel row-major; padding is 0.",),
    tags=_TAGS,
    libraries=EVERY_DEVICE,
)
family.composite(
    "col2im",
    "col2im",
    doc="The sum of windows that overlap: the adjoint of im2col.",
    clauses=("Every element is the sum, in no specified order, of the columns' elements that im2col copies from it.",),
    tags=_TAGS | UNORDERED,
    libraries=EVERY_DEVICE,
)
