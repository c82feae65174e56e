"""The strides of Fourier transforms, which PyTorch 2.11 promises wrongly: some promised layouts put several elements in
one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from keel.torch_adapter.meta_bugs.record import ALL, MetaBug, NamedArguments, Size, Strides, row_major
from keel.torch_adapter.sympy_expressions import hint_of

aten = torch.ops.aten
CUFFT_DIMS = 3  # as many as cuFFT transforms in one go
Order = Callable[[Size], int]
"""The number that stands for a stride where dimensions are ordered by it."""


# -- transforms -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transformed:
    """What a Fourier transform is applied to: sizes, strides, the kind of device, and how strides are ordered.

    Source: ``_exec_fft`` and its callers in aten/src/ATen/native, mkl/SpectralOps.cpp and cuda/SpectralOps.cpp.
    """

    shape: Sequence[Size]
    strides: Sequence[Size]
    cuda: bool
    order: Order

    def c2c(self, dims: Sequence[int]) -> Sequence[Size]:
        """What MKL's binding (or cuFFT's, on CUDA) leaves: batch dimensions in the order of their strides, then the
        transformed ones.
        """
        if not dims:
            return self.strides
        if self.cuda:
            return self._stages(self.strides, self.shape, dims)
        return self._laid_out(self.strides, self.shape, self._outermost_first(dims, self.strides))

    def r2c(self, dims: Sequence[int], half: Sequence[Size], onesided: bool) -> Sequence[Size]:
        """``half`` are the sizes with the first half of the last of ``dims``."""
        shape = half if onesided else self.shape
        if not self.cuda:
            order = [*self._outermost_first(dims[:-1], self.strides), dims[-1]]
            return self._laid_out(self.strides, shape, order)
        if _in_one_go(dims):
            return self._laid_out(self.strides, shape, dims)
        if half[dims[-1]] != shape[dims[-1]]:
            return row_major(shape)
        return self._stages(self._laid_out(self.strides, half, dims[-1:]), half, dims[:-1])

    def c2r(self, dims: Sequence[int], shape: Sequence[Size]) -> Sequence[Size]:
        """``shape`` are the sizes of the result."""
        if self.cuda and _in_one_go(dims):
            return self._laid_out(row_major(self.shape), shape, dims)
        alone = row_major(self.shape) if self.cuda else self.strides
        first = self.c2c(dims[:-1]) if dims[:-1] else alone
        return self._laid_out(first, shape, dims[-1:])

    def _stages(self, strides: Sequence[Size], shape: Sequence[Size], dims: Sequence[int]) -> Sequence[Size]:
        while dims:
            dims = self._outermost_first(dims, strides)
            strides, dims = self._laid_out(strides, shape, dims[-CUFFT_DIMS:]), dims[:-CUFFT_DIMS]
        return strides

    def _outermost_first(self, dims: Sequence[int], strides: Sequence[Size]) -> list[int]:
        return sorted(dims, key=lambda d: self.order(strides[d]), reverse=True)

    def _laid_out(self, strides: Sequence[Size], shape: Sequence[Size], dims: Sequence[int]) -> Sequence[Size]:
        """Strides of sizes ``shape`` with ``dims`` innermost in that order, the others outside by their old strides."""
        others = self._outermost_first([d for d in range(len(shape)) if d not in dims], strides)
        packed: dict[int, Size] = {}
        step: Size = 1
        for d in reversed([*others, *dims]):
            packed[d], step = step, step * shape[d]
        return tuple(packed[d] for d in range(len(shape)))


def _in_one_go(dims: Sequence[int]) -> bool:
    return len(dims) <= CUFFT_DIMS and list(dims[:2]) != [0, 1]


# -- bugs -------------------------------------------------------------------------------------------------------------


def _transform(strides: Callable[[Transformed, NamedArguments, torch.Tensor], Sequence[Size]]) -> Strides:
    def of(args: NamedArguments, value: torch.Tensor) -> Sequence[Size] | None:
        x = args["self"]
        cuda = x.device.type == "cuda"
        if not cuda and not torch.backends.mkl.is_available():
            return None
        return strides(Transformed(x.shape, x.stride(), cuda, lambda s: hint_of(s) or 0), args, value)

    return of


def _r2c(x: Transformed, args: NamedArguments, value: torch.Tensor) -> Sequence[Size]:
    half, last = list(x.shape), args["dim"][-1]
    half[last] = half[last] // 2 + 1
    return x.r2c(args["dim"], half, args["onesided"])


_SORTED = (
    "The fake kernel forgets the order of the transformed dimensions, and promises strides with which elements "
    "share memory."
)
FFT_STRIDES: tuple[MetaBug, ...] = (
    MetaBug((aten._fft_c2c.default,), ALL[:1], _SORTED, _transform(lambda x, args, value: x.c2c(args["dim"]))),
    MetaBug(
        (aten._fft_r2c.default,),
        ALL[:1],
        "Row-major is promised whatever dimensions are transformed; on CUDA their order is forgotten.",
        _transform(_r2c),
    ),
    MetaBug(
        (aten._fft_c2r.default,), ALL[:1], _SORTED, _transform(lambda x, args, value: x.c2r(args["dim"], value.shape))
    ),
)
