"""Type rules of matrices and transforms: column-major results as LAPACK makes them, the layouts of FFT libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from keel.torch_adapter import Transformed
from keel.types import Dim, as_dim, contiguous_strides

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
    return Requires(
        f"{name}-square",
        f"{name} has at least two dimensions, the last two of equal size.",
        lambda args: args[name].rank >= 2 and args[name].shape[-1] == args[name].shape[-2],
    )


def matrix(name: str) -> Requires:
    return Requires(f"{name}-matrix", f"{name} has at least two dimensions.", lambda args: args[name].rank >= 2)


def same_dtype(*names: str) -> Requires:
    return Requires(
        "same-dtype",
        f"{' and '.join(names)} have the same dtype.",
        lambda args: len({args[n].dtype for n in names}) == 1,
    )


# -- FFT --------------------------------------------------------------------------------------------------------------


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
    return tuple(map(as_dim, _transformed(args).c2c(fft_dims(args))))


def r2c_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    half = halved({**args, "onesided": True})
    return tuple(map(as_dim, _transformed(args).r2c(fft_dims(args), half, args["onesided"])))


def c2r_strides(args: Args, shape: Shape) -> Sequence[Dim]:
    return tuple(map(as_dim, _transformed(args).c2r(fft_dims(args), shape)))


def _transformed(args: Args) -> Transformed:
    x = args["self"]
    return Transformed(x.shape, x.strides, x.device.type == "cuda", typical)
