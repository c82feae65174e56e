"""Reductions, scans and orderings, as nodes of ONNX."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from keel_onnxruntime.onnx_values import ANY, BITS, BOOL, FLOATS, INTS, NUMBERS, REAL, WIDE, computed_in
from keel_onnxruntime.rows import MADE, Row, expand, row, select

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

KEEP = ("keepdim", "dtype")
DIM = ("dim", "keepdim")
ORDERED = REAL | INTS - {torch.int16}
"""The dtypes that ONNX Runtime compares the elements of a tensor in."""


def rows() -> Iterator[Row]:
    yield row("sum.dim_IntList", ANY, partial(_summed, "ReduceSum"), optional=KEEP, results=NUMBERS)
    yield row("sum", ANY, partial(_summed, "ReduceSum"), optional=("dtype",), results=NUMBERS)
    yield row("mean.dim", FLOATS, partial(_summed, "ReduceMean"), optional=KEEP, results=FLOATS)
    yield row("mean", FLOATS, partial(_summed, "ReduceMean"), optional=("dtype",), results=FLOATS)
    yield row("prod.dim_int", ANY, partial(_summed, "ReduceProd"), optional=KEEP, results=NUMBERS)
    yield row("prod", ANY, partial(_summed, "ReduceProd"), optional=("dtype",), results=NUMBERS)
    for name, kind in (("amax", "Max"), ("amin", "Min")):
        yield row(name, ANY, partial(_extreme, kind), ORDERED | BOOL, optional=DIM)
        yield row(f"arg{name[1:]}", NUMBERS, partial(_place, kind), ORDERED, optional=DIM)
        yield row(f"{name[1:]}.dim", NUMBERS, partial(_extreme_and_place, kind), ORDERED, optional=("keepdim",))
        yield row(name[1:], NUMBERS, partial(_extreme, kind), ORDERED)
    for name, kind in (("any", "Max"), ("all", "Min")):
        yield row(name, ANY, partial(_truth, kind))
        yield row(f"{name}.dim {name}.dims", ANY, partial(_truth, kind), optional=DIM)
    yield row("cumsum", ANY, partial(_scanned, "CumSum"), optional=MADE, results=FLOATS | WIDE)
    yield row("cumprod", ANY, partial(_scanned, "CumProd"), optional=MADE, results=FLOATS | WIDE)
    yield row("sort sort.stable", NUMBERS, _sorted, ORDERED, optional=("dim", "descending", "stable"))
    yield row("topk", NUMBERS, _largest, ORDERED, optional=("dim", "largest", "sorted"))


def _axes(g: OnnxGraph, x: Any, dims: Any) -> list[int]:
    """The dimensions that are named, or all. A scalar has none, though PyTorch takes 0 and -1."""
    rank = g.like[x].dim()
    return ([dims] if isinstance(dims, int) else list(dims or range(rank))) if rank else []


def _summed(kind: str, g: OnnxGraph, out: Any, x: Any, dims: Any = None, keep: bool = False, **_: Any) -> Any:
    """Elements are converted to the dtype of the result first; 16-bit floats are then added in float32."""
    if not g.like[x].numel():
        return _of_nothing(g, out, math.nan if kind == "ReduceMean" else kind == "ReduceProd")
    x = g.cast(x, out.dtype)
    x, axes = g.cast(x, computed_in(out.dtype, REAL | INTS)), _axes(g, x, dims)
    if g.dtypes[x].is_floating_point:
        return g.node(kind, x, axes, keepdims=int(keep), noop_with_empty_axes=1)
    return _of_integers(kind, g, out, x, axes)


def _of_nothing(g: OnnxGraph, out: Any, number: float) -> Any:
    """The result of a reduction of no elements."""
    return expand(g, g.value(number, out.dtype), out.shape)


def _of_integers(kind: str, g: OnnxGraph, out: Any, x: Any, axes: list[int]) -> Any:
    """ONNX Runtime adds and multiplies integers in floats where it reduces, and exactly in products of matrices and in
    running products. The dimensions that are reduced are put last, as one.
    """
    rank, dtype = g.like[x].dim(), computed_in(out.dtype, WIDE)
    axes = [axis % rank for axis in axes]
    order = [*(axis for axis in range(rank) if axis not in axes), *axes]
    count = math.prod(g.like[x].shape[axis] for axis in axes)
    x = g.cast(x, dtype)
    rows = g.node("Reshape", g.node("Transpose", x, perm=order) if rank else x, [-1, count])
    if kind == "ReduceSum":
        result = g.node("MatMul", rows, expand(g, g.value(1, dtype), [count, 1]))
    else:
        result = g.node("Gather", g.node("CumProd", rows, torch.tensor(1)), torch.tensor(-1), axis=1)
    return g.node("Reshape", result, list(out.shape))


def _extreme(kind: str, g: OnnxGraph, out: Any, x: Any, dims: Any = None, keep: bool = False) -> Any:
    """ONNX Runtime ignores NaN, which PyTorch gives where it is among the elements."""
    axes: Any = dict(keepdims=int(keep), noop_with_empty_axes=1)
    result = g.node(f"Reduce{kind}", x, _axes(g, x, dims), **axes)
    if not g.dtypes[x].is_floating_point:
        return result
    return select(g, g.node("ReduceMax", g.node("IsNaN", x), _axes(g, x, dims), **axes), math.nan, result)


def _place(kind: str, g: OnnxGraph, out: Any, x: Any, dim: Any = None, keep: bool = False) -> Any:
    """The place of the first NaN, or of the first extreme if no element is NaN."""
    if dim is None or not g.like[x].dim():
        return g.node("Reshape", _place_along(kind, g, g.node("Reshape", x, [-1]), 0, False), out.shape)
    return _place_along(kind, g, x, dim, keep)


def _place_along(kind: str, g: OnnxGraph, x: Any, dim: int, keep: bool) -> Any:
    axis: Any = dict(axis=dim, keepdims=int(keep))
    result = g.node(f"Arg{kind}", x, **axis)
    if not g.dtypes[x].is_floating_point:
        return result
    is_nan = g.node("IsNaN", x)
    has_nan = g.node("ReduceMax", is_nan, [dim], keepdims=int(keep))
    return select(g, has_nan, g.node("ArgMax", g.cast(is_nan, torch.int32), **axis), result)


def _extreme_and_place(kind: str, g: OnnxGraph, out: Any, x: Any, dim: int, keep: bool = False) -> Any:
    if not g.like[x].dim():
        return x, g.value(torch.tensor(0))
    return _extreme(kind, g, out[0], x, dim, keep), _place_along(kind, g, x, dim, keep)


def _truth(kind: str, g: OnnxGraph, out: Any, x: Any, dims: Any = None, keep: bool = False) -> Any:
    if not g.like[x].numel():
        return _of_nothing(g, out, kind == "Min")
    x = g.cast(x, torch.bool)
    if dims is not None and not isinstance(dims, int) and not dims:  # without a dimension in the list, none is reduced
        return g.node("Identity", x)
    return g.node(f"Reduce{kind}", x, _axes(g, x, dims), keepdims=int(keep), noop_with_empty_axes=1)


def _scanned(kind: str, g: OnnxGraph, out: Any, x: Any, axis: int, **_: Any) -> Any:
    x = g.cast(x, out.dtype)
    if not g.like[x].dim():
        return x
    return g.node(kind, g.cast(x, computed_in(out.dtype, REAL | WIDE)), torch.tensor(axis))


def _key(g: OnnxGraph, x: Any) -> Any:
    """Integers in the order of PyTorch's: zeros of both signs are equal, and NaN is above all numbers."""
    dtype = g.dtypes[x]
    if not dtype.is_floating_point:
        return x
    bits = g.cast(x, BITS[dtype], "BitCast")
    most = torch.iinfo(BITS[dtype]).max
    key = select(g, g.node("Less", bits, 0), g.node("BitwiseXor", bits, most), bits)
    return select(g, g.node("IsNaN", x), most, select(g, g.node("Equal", x, 0), 0, key))


def _largest(
    g: OnnxGraph, out: Any, x: Any, count: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """Equal elements stay in order."""
    if not g.like[x].dim():
        return g.node("Reshape", x, out[0].shape), g.value(torch.zeros(out[1].shape, dtype=torch.int64))
    places = g.node_of("TopK", 2, _key(g, x), [count], axis=dim, largest=int(largest), sorted=1)[1]
    return g.node("GatherElements", x, places, axis=dim), places


def _sorted(g: OnnxGraph, out: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The arguments are ``dim`` and ``descending``, or ``stable`` before them."""
    is_stable = "stable" in kwargs or (args and (args[0] is None or isinstance(args[0], bool)))
    names = ("stable", "dim", "descending") if is_stable else ("dim", "descending")
    values = dict(zip(names, args, strict=False)) | kwargs
    dim = values.get("dim", -1)
    size = g.like[x].shape[dim] if g.like[x].dim() else 1
    return _largest(g, out, x, size, dim, values.get("descending", False))
