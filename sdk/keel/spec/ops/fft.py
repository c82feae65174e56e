"""Discrete Fourier transforms: three primitives, by what is real; everything else of ``torch.fft`` is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import COMPLEX
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.pytorch_kernels import EVERY_DEVICE
from keel.spec.rules import Args, LayoutRule, Out, ShapeRule, like, number, real, shape_of
from keel.spec.rules_linalg import (
    c2c_strides,
    c2r_strides,
    complexed,
    fft_dims,
    halved,
    r2c_strides,
    restored,
)
from keel.spec.samples import drawn

aten = torch.ops.aten
family = Family("fft", profile="fft")

_DOUBLES = (torch.float32, torch.float64)
_SUM = (
    "X[k] is the sum over n of x[n] exp(-2 pi i k n / N), over each of dim in any order. It is multiplied by 1 for "
    "normalization 0, by 1 / sqrt(N) for 1 and by 1 / N for 2; N is the product of the sizes transformed over."
)
_FINITE = Clause("If a value is not finite, no element of its transform is finite.", About.NONFINITE)
_ACCURATE = "The error against the exact transform grows no faster than log N ulps of the largest element, for every N."


def _one_each(args: Args) -> bool:
    dims = fft_dims(args)
    return len(set(dims)) == len(dims)


def _not_empty(args: Args) -> bool:
    return not args["dim"] or all(n != 0 for n in args["self"].shape)


_FRONT = Requires(
    "dims-not-negative",
    "Dimensions are counted from the front: PyTorch's own kernels write wrong strides for others.",
    lambda args: all(d >= 0 for d in args["dim"]),
)
_ONCE = Requires("dims-unique", "No dimension is transformed twice.", _one_each)
_SOME = Requires("dims-nonempty", "At least one dimension is transformed.", lambda args: bool(args["dim"]))
_SIZED = Requires(
    "nonempty", "What is transformed has at least one element: PyTorch's own kernels raise for none.", _not_empty
)


def _has_half(args: Args) -> bool:
    have, want = args["self"].shape[fft_dims(args)[-1]], number(args["last_dim_size"])
    if not isinstance(have, int) or not isinstance(want, int):
        return True
    return want >= 1 and have in (want, want // 2 + 1)


_HALF = Requires(
    "half-spectrum",
    "The last transformed dimension has the n // 2 + 1 frequencies of the n elements that are asked for, or all n.",
    _has_half,
)


def _inputs(dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, list[int]]]:
    """Tensors and dimensions: lengths that are powers of two, prime, 1; layouts; batches before, between and after."""
    for n in (1, 2, 7, 8, 30):
        yield drawn(dtype, n, seed=n), [0]
    for dims in ([0], [1], [2], [0, 1], [1, 2], [2, 0], [0, 1, 2], [2, 1, 0]):
        yield drawn(dtype, 3, 4, 5, seed=len(dims)), dims
        yield drawn(dtype, 5, 3, 4, seed=9).permute(1, 2, 0), dims
    yield drawn(dtype, 2, 3, 4, 5).to(memory_format=torch.channels_last), [2, 3]
    yield drawn(dtype, 4, 1).expand(4, 6), [1]
    yield drawn(dtype, 6, 8)[::2, 1::3], [0, 1]
    yield drawn(dtype, 2, 3, 1, 4, 2), [0, 1, 3, 4]


def _c2c(dtype: torch.dtype) -> Iterator[Sample]:
    for i, (x, dims) in enumerate(_inputs(dtype)):
        yield Sample((x, dims, i % 3, i % 2 == 0))
    yield Sample((drawn(dtype, 3, 4), [], 0, True))


def _r2c(dtype: torch.dtype) -> Iterator[Sample]:
    for i, (x, dims) in enumerate(_inputs(dtype)):
        for onesided in (True, False):
            yield Sample((x, dims, i % 3, onesided))


def _c2r(dtype: torch.dtype) -> Iterator[Sample]:
    for i, (x, dims) in enumerate(_inputs(dtype)):
        half = x.shape[dims[-1]]
        for n in {max(2 * half - 2, 1), 2 * half - 1, half}:
            yield Sample((x, dims, i % 3, n))


family.primitive(
    "fft_c2c",
    "_fft_c2c",
    doc="The discrete Fourier transform of complex numbers over the dimensions dim.",
    clauses=(
        _SUM,
        Clause("With forward false the sign of the exponent is reversed.", parameters=("forward",)),
        _FINITE,
        _ACCURATE,
        Clause("Over no dimension it is the identity.", About.SCALAR),
        "Forward and then back, with normalizations whose product is 1 / N, gives the input but for rounding.",
    ),
    out=(Out(like("self"), shape_of("self"), LayoutRule("fft_c2c", c2c_strides)),),
    requires=(_FRONT, _ONCE, _SIZED),
    dtypes=COMPLEX,
    samples=_c2c,
    budget={d: Budget(times=2.0) for d in COMPLEX},
    libraries=EVERY_DEVICE,
)

family.primitive(
    "fft_r2c",
    "_fft_r2c",
    doc="The discrete Fourier transform of real numbers over the dimensions dim.",
    clauses=(
        _SUM,
        Clause(
            "With onesided the last of dim keeps its first n // 2 + 1 frequencies only; the others are their "
            "conjugates, mirrored in all of dim.",
            parameters=("onesided",),
        ),
        _FINITE,
        _ACCURATE,
        "Over one dimension frequency 0 is real: its imaginary part is 0.",
    ),
    out=(
        Out(
            complexed("self"),
            ShapeRule("shape(self), dim[-1] halved if onesided", halved),
            LayoutRule("fft_r2c", r2c_strides),
        ),
    ),
    requires=(_FRONT, _SOME, _ONCE, _SIZED),
    dtypes=_DOUBLES,
    samples=_r2c,
    budget={d: Budget(times=2.0) for d in _DOUBLES},
    libraries=EVERY_DEVICE,
)

family.primitive(
    "fft_c2r",
    "_fft_c2r",
    doc="The real numbers whose Fourier transform over the dimensions dim is the input, as the "
    "sum with the other sign in the exponent.",
    clauses=(
        "x[n] is the sum over k of X[k] exp(2 pi i k n / N), over each of dim, times the same factor as in "
        "fft_r2c; N of the last of dim is last_dim_size.",
        Clause(
            "The input holds the first last_dim_size // 2 + 1 frequencies of the last of dim; what is beyond "
            "is not read, and counts as the conjugate mirror image.",
            About.COMPLEX,
        ),
        Clause(
            "Over one dimension the imaginary part of frequency 0 is not read, nor, for an even "
            "last_dim_size, that of the last one. Over several these frequencies are the conjugate mirror "
            "images of each other over the rest of dim; what others give is not specified.",
            About.COMPLEX,
        ),
        "The input is not changed.",
        _ACCURATE,
    ),
    out=(
        Out(
            real(like("self")),
            ShapeRule("shape(self), dim[-1] is last_dim_size", restored),
            LayoutRule("fft_c2r", c2r_strides),
        ),
    ),
    requires=(_FRONT, _SOME, _ONCE, _SIZED, _HALF),
    dtypes=COMPLEX,
    samples=_c2r,
    budget={d: Budget(times=2.0) for d in COMPLEX},
    libraries=EVERY_DEVICE,
)


@family(
    "fft_fftfreq",
    clauses=(
        "The frequencies are 0, 1, ... (n - 1) // 2, then -(n // 2) ... -1, each times 1 / (n d).",
        "The dtype is dtype, or the default float.",
    ),
)
def fft_fftfreq(
    n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> torch.Tensor:
    """The frequencies of a transform of n elements that are d apart, in cycles."""
    # Each half by itself: in 16 bits, places beyond 256 are not exact, and would not tell the halves apart.
    dtype = dtype or torch.get_default_dtype()
    halves = [aten.arange.start(*ends, dtype=dtype, device=device) for ends in ((0, (n + 1) // 2), (-(n // 2), 0))]
    return aten.cat.default(halves) * _bin(n, d)


@family(
    "fft_rfftfreq",
    clauses=(
        "The frequencies are 0, 1, ... n // 2, each times 1 / (n d).",
        "The dtype is dtype, or the default float.",
    ),
)
def fft_rfftfreq(
    n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> torch.Tensor:
    """The frequencies of a one-sided transform of n real elements that are d apart, in cycles."""
    half = n // 2 if n >= 0 else -(-n // 2)
    return aten.arange.default(half + 1, dtype=dtype or torch.get_default_dtype(), device=device) * _bin(n, d)


def _bin(n: Any, d: float) -> Any:
    """How far apart frequencies are: infinitely for no elements or for elements at one place, as in C++."""
    length = n * d
    return math.copysign(math.inf, length) if length == 0 else 1.0 / length
