"""Fourier transforms: sizes even, odd, prime and powers of two; norms; one side or both; several dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, Levels
from ..values import SeededValues, fill, kinds_of
from .call_templates import CallTemplate, Drawn, TensorArg, domain, when

SIZES = ("8", "1", "2", "3", "7", "9", "13", "16", "17", "30", "64", "97", "127", "128", "243", "1000", "1024")
DIMS: Mapping[str, tuple[Callable[[int], tuple[int, ...]], list[int]]] = {
    "alone": (lambda n: (n,), [0]),
    "last": (lambda n: (3, n), [1]),
    "first": (lambda n: (n, 2), [0]),
    "both": (lambda n: (5, n), [0, 1]),
    "backwards": (lambda n: (n, 3), [1, 0]),
    "middle": (lambda n: (2, n, 3), [1]),
    "three": (lambda n: (2, 3, n), [0, 1, 2]),
}
"""Over dimensions that are not adjacent eager PyTorch's own kernels write outside of their memory in some layouts."""
NORMS = {"none": 0, "root": 1, "whole": 2}
FFT: Mapping[str, tuple[str, ...]] = {"size": SIZES, "dims": tuple(DIMS), "norm": tuple(NORMS)}
LAY = ("contiguous", "transposed", "offset", "odd_ones")
KINDS = ("random", "cancel", "exact", "duplicates", "tiny")


def _place(levels: Levels) -> tuple[tuple[int, ...], list[int], int]:
    shape, dims = DIMS[levels["dims"]]
    return shape(int(levels["size"])), dims, NORMS[levels["norm"]]


def _c2c(levels: Levels) -> CallTemplate:
    shape, dims, norm = _place(levels)
    if levels["side"] == "nowhere":
        return CallTemplate("aten._fft_c2c.default", (TensorArg(shape), [], norm, True))
    return CallTemplate("aten._fft_c2c.default", (TensorArg(shape), dims, norm, levels["side"] == "forward"))


def _r2c(levels: Levels) -> CallTemplate:
    shape, dims, norm = _place(levels)
    return CallTemplate("aten._fft_r2c.default", (TensorArg(shape), dims, norm, levels["side"] == "one"))


def _c2r(levels: Levels) -> CallTemplate:
    shape, dims, norm = _place(levels)
    n = shape[dims[-1]]
    half = [*shape]
    half[dims[-1]] = n // 2 + 1
    return CallTemplate("aten._fft_c2r.default", (TensorArg(tuple(half), draw=_of_real(dims, n)), dims, norm, n))


def _of_real(dims: list[int], n: int) -> Drawn:
    """Frequencies of real numbers: over several dimensions those of the last one that are their own mirror image, 0 and
    the last for an even ``n``, are Hermitian over the others.
    """
    *others, last = dims

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        x = fill(
            draw, values if values in kinds_of(dtype) else "random", dtype, prod(shape), low=-4.0, high=4.0, terms=2
        ).reshape(shape)
        if others:
            image = x.flip(others).roll([1] * len(others), others).conj()
            own = [0, n // 2] if n % 2 == 0 else [0]
            x = x.index_copy(last, torch.tensor(own), ((x + image) / 2).index_select(last, torch.tensor(own)))
        return x

    return drawn


def _frequencies(name: str) -> Callable[[Levels], CallTemplate]:
    def ask(levels: Levels) -> CallTemplate:
        dtype = {"f32": torch.float32, "f64": torch.float64}[levels["named"]]
        return CallTemplate(
            f"aten.fft_{name}freq.default", (int(levels["size"]), float(levels["step"])), {"dtype": dtype}
        )

    return ask


_COMPLEX, _REAL = (torch.complex64, torch.complex128), (torch.float32, torch.float64)
_NAN = "The oracles know nothing of an element of a transform over what is not finite."
_OPEN = "It follows from the others; no case transforms there and back."
_GROWS = {"C4": when(size=("97", "127", "243", "1000", "1024"))}
_FACTORS = {"size": (*SIZES, "1025"), "step": ("1.0", "0.5", "3.0"), "named": ("f32", "f64")}
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "fft_c2c",
    lambda op: domain(
        op,
        {**FFT, "side": ("forward", "backward", "nowhere")},
        _c2c,
        dtypes=_COMPLEX,
        lay=LAY,
        kinds=KINDS,
        covers={**_GROWS, "C1": lambda levels: True, "C2": when(side="backward"), "C5": when(side="nowhere")},
        untested={"C3": _NAN, "C6": _OPEN},
    ),
)
declare(
    "fft_r2c",
    lambda op: domain(
        op,
        {**FFT, "side": ("one", "both")},
        _r2c,
        dtypes=_REAL,
        lay=LAY,
        kinds=KINDS,
        untested={"C3": _NAN},
        covers={**_GROWS, "C2": when(side="one"), "C5": when(dims=("alone", "last", "first"))},
    ),
)
declare(
    "fft_c2r",
    lambda op: domain(
        op,
        FFT,
        _c2r,
        dtypes=_COMPLEX,
        lay=LAY,
        kinds=KINDS,
        covers={"C3": when(dims=("alone", "last", "first")), "C5": _GROWS["C4"]},
    ),
)
declare("fft_fftfreq", lambda op: domain(op, _FACTORS, _frequencies("fft"), dtypes=_REAL[:1], kinds=("own",)))
declare("fft_rfftfreq", lambda op: domain(op, _FACTORS, _frequencies("rfft"), dtypes=_REAL[:1], kinds=("own",)))
