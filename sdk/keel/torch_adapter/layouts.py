"""Layouts that PyTorch's fake kernels promise and its own kernels do not give, and what those give.

A program compiled to such a promise returns other strides than eager; worse, some promised layouts put several elements
in one place.  Each fault is data: the operators, where it was seen, a sentence, and the strides that eager gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from keel.torch_adapter.fault import Fault, Given, Size, Strides, row_major
from keel.torch_adapter.kernels import ABSENT, KERNELS
from keel.torch_adapter.symbols import expression, hint_of

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
        found: dict[int, Size] = {}
        step: Size = 1
        for d in reversed([*others, *dims]):
            found[d], step = step, step * shape[d]
        return tuple(found[d] for d in range(len(shape)))


def _in_one_go(dims: Sequence[int]) -> bool:
    return len(dims) <= CUFFT_DIMS and list(dims[:2]) != [0, 1]


# -- faults -----------------------------------------------------------------------------------------------------------


def _transform(strides: Callable[[Transformed, Given, torch.Tensor], Sequence[Size]]) -> Strides:
    def of(args: Given, said: torch.Tensor) -> Sequence[Size] | None:
        x = args["self"]
        cuda = x.device.type == "cuda"
        if not cuda and not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
            return None
        return strides(Transformed(x.shape, x.stride(), cuda, lambda s: hint_of(s) or 0), args, said)

    return of


def _r2c(x: Transformed, args: Given, said: torch.Tensor) -> Sequence[Size]:
    half, last = list(x.shape), args["dim"][-1]
    half[last] = half[last] // 2 + 1
    return x.r2c(args["dim"], half, args["onesided"])


def _row_major(args: Given, said: torch.Tensor) -> Sequence[Size]:
    return row_major(said.shape)


def _apart(args: Given, said: torch.Tensor) -> Sequence[Size] | None:
    x = args["self"]
    repeated = any(expression(s) == 0 and expression(n) != 1 for n, s in zip(x.shape, x.stride(), strict=True))
    return torch.empty_like(x).stride() if repeated else None


def _copied(args: Given, said: torch.Tensor) -> Sequence[Size] | None:
    return torch.empty_like(args["self"] if "self" in args else args["input"]).stride()


def _moved(args: Given, said: torch.Tensor) -> Sequence[Size] | None:
    return None if args["a"].device == said.device else torch.empty_like(args["a"]).stride()


def _elementwise(args: Given, said: torch.Tensor) -> Sequence[Size] | None:
    first, second = args["self"], args["other"]
    both = isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    return aten.eq.Tensor(first, second).stride() if both else None


_SORTED = (
    "The fake kernel forgets the order of the transformed dimensions, and promises strides with which elements "
    "share memory."
)
_ALL = ("2.11", "2.13", "2.14", "2.15")
_DRAWN = "The operand's order of dimensions is promised; eager's draws are row-major."
FAULTS: tuple[Fault, ...] = (
    Fault((aten._fft_c2c.default,), ("2.11",), _SORTED, _transform(lambda x, args, said: x.c2c(args["dim"]))),
    Fault(
        (aten._fft_r2c.default,),
        ("2.11",),
        "Row-major is promised whatever dimensions are transformed; on CUDA their order is forgotten.",
        _transform(_r2c),
    ),
    Fault(
        (aten._fft_c2r.default,), ("2.11",), _SORTED, _transform(lambda x, args, said: x.c2r(args["dim"], said.shape))
    ),
    Fault(
        (aten.slice_scatter.default,),
        ("2.11",),
        "The strides of an operand whose elements share memory are promised; eager gives each its own.",
        _apart,
    ),
    Fault((aten._standard_gamma.default,), _ALL[1:], _DRAWN, _row_major),
    Fault((aten.poisson.default, aten.normal.float_Tensor, aten.normal.Tensor_Tensor), _ALL, _DRAWN, _row_major),
    Fault(
        (aten.uniform.default, aten.native_dropout.default),
        _ALL,
        "The strides of an operand with gaps, "
        "or whose elements share memory, are promised; eager leaves gaps out, and gives each element its own.",
        _copied,
    ),
    Fault(
        (aten.copysign.Tensor, aten.div.Tensor_mode),
        _ALL,
        "Where the operands' orders of dimensions "
        "differ, the second's is promised and eager gives the first's (of quotients, of floats rounded down).",
        _elementwise,
    ),
    Fault(
        (torch.ops.prims.device_put.default,),
        _ALL,
        "The operand's gaps are promised on the other device; eager leaves them out.",
        _moved,
    ),
    *KERNELS,
)
"""What is known to be promised wrongly."""

_FAULTS = MappingProxyType({op: fault for fault in FAULTS for op in fault.ops})


def fault_of(op: Callable[..., Any]) -> Fault | None:
    """What is known of an operator's promises."""
    return _FAULTS.get(op if getattr(op, "namespace", "aten") in ("aten", "prims") else str(op))


def laid_out(op: Any, args: Sequence[Any], kwargs: Given, said: Any) -> Any:
    """``said``, the fake result of a call, with the strides that eager gives.  Runs under the fake mode of ``said``."""
    fault, absent = fault_of(op), ABSENT.get(op)
    if fault is None and absent is None:
        return said
    named = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | dict(kwargs)
    if not isinstance(said, tuple | list):
        return _restrided(fault, named, said)
    none = absent(named) if absent is not None else ()
    about = fault.results if fault is not None and fault.results is not None else range(len(said))
    return type(said)(
        [None if k in none else _restrided(fault, named, v) if k in about else v for k, v in enumerate(said)]
    )


def _restrided(fault: Fault | None, named: Given, said: Any) -> Any:
    if fault is None or not isinstance(said, torch.Tensor) or fault.device not in (None, said.device.type):
        return said
    strides = fault.strides(named, said)
    if strides is None or _same(said, strides):
        return said
    return torch.empty_strided(said.shape, strides, dtype=said.dtype, device=said.device)


def _same(said: torch.Tensor, strides: Sequence[Size]) -> bool:
    """Whether strides that matter are equal: not those of sizes 0 and 1, nor any of an empty tensor."""
    sizes = [expression(n) for n in said.shape]
    return 0 in sizes or all(
        n == 1 or expression(s) == expression(t) for n, s, t in zip(sizes, said.stride(), strides, strict=True)
    )
