"""Type rules of matrices and transforms: column-major results as LAPACK makes them, the layouts of FFT libraries."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from keel.spec.op import Requires
from keel.spec.rules import (
    REAL,
    Args,
    DtypeRule,
    LayoutRule,
    Shape,
    ShapeRule,
    broadcast_shapes,
    canonical,
    like,
    number,
    typical,
)
from keel.types import Dim, TensorType, as_dim, contiguous_strides, product

COMPLEX_OF = {r: c for c, r in REAL.items()}
"""The complex dtype made of two of a float."""


def smaller(a: Dim, b: Dim) -> Dim:
    """The lesser of two sizes."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else as_dim(sympy.Min(a, b))


# -- dtypes -----------------------------------------------------------------------------------------------------------

def complexed(name: str) -> DtypeRule:
    """The complex dtype of an argument's precision."""
    return DtypeRule(f"complex({like(name).text})", lambda args: COMPLEX_OF.get(args[name].dtype, args[name].dtype))


# -- shapes -----------------------------------------------------------------------------------------------------------

Matrix = Callable[[Dim, Dim, Dim], tuple[Dim, ...]]
"""The last sizes of a result from those of matrices: rows m, columns n, and the lesser of the two, k."""


def batched(name: str, text: str, last: Matrix) -> ShapeRule:
    """The sizes of an argument of matrices [..., m, n], the last two replaced; k is the lesser of them."""
    def of(args: Args) -> Shape:
        *batch, m, n = args[name].shape
        return (*batch, *last(m, n, smaller(m, n)))
    return ShapeRule(f"batch({name}){text}", of)


def batch(name: str) -> ShapeRule:
    return batched(name, "", lambda m, n, k: ())


def only_if(flag: Callable[[Args], bool], text: str, rule: ShapeRule) -> ShapeRule:
    """``rule``, or [0] for a result that was not asked for."""
    return ShapeRule(f"{rule.text} if {text} else [0]", lambda args: rule.of(args) if flag(args) else (0,))


def solution(right: str, left: str) -> ShapeRule:
    """The sizes of right-hand sides, their batch dimensions broadcast with those of the matrices."""
    def of(args: Args) -> Shape:
        together = broadcast_shapes([args[right].shape[:-2], args[left].shape[:-2]])
        return (*together, *args[right].shape[-2:])
    return ShapeRule(f"broadcast(batch({right}), batch({left}))[m, n] of {right}", of)


# -- layouts ----------------------------------------------------------------------------------------------------------

def column_major_strides(shape: Shape) -> Shape:
    """Strides of matrices stored column after column, one matrix after the other."""
    strides = contiguous_strides(shape)
    return strides if len(shape) < 2 else (*strides[:-2], 1, 1 if shape[-2] == 0 else shape[-2])


COLUMNS = LayoutRule("column-major", lambda args, shape: column_major_strides(shape))


def columns_but_on_cuda(name: str) -> LayoutRule:
    """Column-major, as LAPACK has it; row-major on CUDA, where PyTorch copies what cuSOLVER gives."""
    def of(args: Args, shape: Shape) -> Shape:
        rows = args[name].device.type == "cuda"
        return contiguous_strides(shape) if rows else column_major_strides(shape)
    return LayoutRule("column-major (row-major on CUDA)", of)


# -- preconditions ----------------------------------------------------------------------------------------------------

def square(name: str) -> Requires:
    return Requires(f"{name} has at least two dimensions, the last two of equal size.",
                    lambda args: args[name].rank >= 2 and args[name].shape[-1] == args[name].shape[-2])


def matrix(name: str) -> Requires:
    return Requires(f"{name} has at least two dimensions.", lambda args: args[name].rank >= 2)


def same_dtype(*names: str) -> Requires:
    return Requires(f"{' and '.join(names)} have the same dtype.",
                    lambda args: len({args[n].dtype for n in names}) == 1)


# -- FFT --------------------------------------------------------------------------------------------------------------

CUFFT_DIMS = 3                                                 # as many as cuFFT transforms in one go


def fft_dims(args: Args) -> list[int]:
    return [canonical(d, args["self"].rank) for d in args["dim"]]


def halved(args: Args) -> Shape:
    """Sizes of a real-to-complex transform: the last transformed dimension has n // 2 + 1 of its n frequencies if only
    the first half is asked for.
    """
    shape, last = list(args["self"].shape), fft_dims(args)[-1]
    if args["onesided"]:
        shape[last] = _half(shape[last])
    return tuple(shape)


def _half(n: Dim) -> Dim:
    return n // 2 + 1 if isinstance(n, int) else as_dim(sympy.floor(n / 2) + 1)


def restored(args: Args) -> Shape:
    """Sizes of a complex-to-real transform: the last transformed dimension has the size that is given."""
    shape = list(args["self"].shape)
    shape[fft_dims(args)[-1]] = as_dim(number(args["last_dim_size"]))
    return tuple(shape)


def c2c_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    """What PyTorch's binding of MKL (or of cuFFT, on CUDA) leaves: batch dimensions in the order of their strides, then
    the transformed ones. Source: ``_exec_fft`` in aten/src/ATen/native, mkl/SpectralOps.cpp and cuda/SpectralOps.cpp.
    """
    given, dims = args["self"], fft_dims(args)
    return _c2c(given, dims, given.device.type == "cuda") if dims else given.strides


def r2c_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    given, dims = args["self"], fft_dims(args)
    if given.device.type != "cuda":
        return _laid_out(given.strides, shape, [*_outermost_first(dims[:-1], given.strides), dims[-1]])
    if _in_one_go(dims):
        return _laid_out(given.strides, shape, dims)
    half = halved({**args, "onesided": True})
    if half != shape:
        return contiguous_strides(shape)
    return _stages(_laid_out(given.strides, half, dims[-1:]), half, dims[:-1])


def c2r_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    given, dims = args["self"], fft_dims(args)
    cuda = given.device.type == "cuda"
    if cuda and _in_one_go(dims):
        return _laid_out(contiguous_strides(given.shape), shape, dims)
    first = _c2c(given, dims[:-1], cuda) if dims[:-1] else contiguous_strides(given.shape) if cuda else given.strides
    return _laid_out(first, shape, dims[-1:])


def _in_one_go(dims: list[int]) -> bool:
    return len(dims) <= CUFFT_DIMS and dims[:2] != [0, 1]


def _c2c(given: TensorType, dims: list[int], cuda: bool) -> Shape:
    if cuda:
        return _stages(given.strides, given.shape, dims)
    return _laid_out(given.strides, given.shape, _outermost_first(dims, given.strides))


def _stages(strides: Shape, shape: Shape, dims: list[int]) -> Shape:
    while dims:
        dims = _outermost_first(dims, strides)
        strides, dims = _laid_out(strides, shape, dims[-CUFFT_DIMS:]), dims[:-CUFFT_DIMS]
    return strides


def _outermost_first(dims: Sequence[int], strides: Shape) -> list[int]:
    return sorted(dims, key=lambda d: typical(strides[d]), reverse=True)


def _laid_out(strides: Shape, shape: Shape, dims: Sequence[int]) -> Shape:
    """Strides of sizes ``shape`` with ``dims`` innermost in that order, the others outside by their old strides."""
    others = _outermost_first([d for d in range(len(shape)) if d not in dims], strides)
    found: dict[int, Dim] = {}
    inner = [shape[d] for d in dims]
    step: Any = as_dim(product(inner))
    for d, s in zip(dims, contiguous_strides(tuple(inner)), strict=True):
        found[d] = s
    for d in reversed(others):
        found[d], step = as_dim(step), step * shape[d]
    return tuple(found[d] for d in range(len(shape)))
