"""Convolutions, pooling and resampling, as nodes of ONNX."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from keel import Call
from keel_onnxruntime.onnx_values import FLOATS, REAL, SHORT, SINGLE
from keel_onnxruntime.rows import Row, row, select

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

POOL = ("stride", "padding", "ceil_mode")


def rows() -> Iterator[Row]:
    yield row("convolution", SHORT, _convolution, SINGLE, when=_of_elements)
    for rank in (2, 3):
        ranks: dict[str, Any] = dict(ranks=(rank + 1, rank + 2))
        names = (*POOL, "count_include_pad")
        yield row(f"avg_pool{rank}d", SHORT, partial(_batched, rank, _mean_pool), SINGLE, optional=names, **ranks)
        pool, names = partial(_batched, rank, _max_pool), (*POOL, "dilation")
        yield row(f"max_pool{rank}d_with_indices", FLOATS, pool, REAL, optional=names, **ranks)
    resizes = "upsample_nearest1d upsample_nearest2d upsample_nearest3d"
    scales = ("scales", "scales_h", "scales_w", "scales_d")
    yield row(resizes, SHORT, _nearest, SINGLE, when=_whole_factors, optional=scales, nonempty=True)


def _each(values: Any, rank: int) -> list[int]:
    several: list[int] = [values] if isinstance(values, int) else list(values)
    return several * (rank // len(several))


def _whole_factors(call: Call) -> str | None:
    """Where sizes are multiplied by integers there is one answer, and nothing depends on rounding."""
    sizes, wide = call.args[0].shape[2:], call.out[0].shape[2:]  # type: ignore[union-attr]
    scales = [v for v in (*call.args[2:], *call.kwargs.values()) if v is not None]
    takes = all(isinstance(b, int) and b % a == 0 for a, b in zip(sizes, wide, strict=True)) and not scales
    return None if takes else f"onnxruntime takes {call.name} to multiples of sizes, without scales."


def _of_elements(call: Call) -> str | None:
    """Results without elements need no nodes."""
    is_empty = any(0 in t.shape for t in call.tensors) and 0 not in call.out[0].shape  # type: ignore[union-attr]
    return f"onnxruntime has no {call.name} of tensors without elements that gives some." if is_empty else None


def _batched(rank: int, pool: Any, g: OnnxGraph, out: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The results of a pool of a batch, or of one image as of a batch."""
    if g.like[x].dim() == rank + 2:
        return pool(g, out, x, *args, **kwargs)
    one = g.node("Unsqueeze", x, [0])
    g.like[one] = g.like[x].unsqueeze(0)
    if isinstance(out, torch.Tensor):
        return g.node("Squeeze", pool(g, out.unsqueeze(0), one, *args, **kwargs), [0])
    results = pool(g, [each.unsqueeze(0) for each in out], one, *args, **kwargs)
    return [g.node("Squeeze", each, [0]) for each in results]


def _nearest(g: OnnxGraph, out: Any, x: Any, *_: Any, **__: Any) -> Any:
    more: Any = dict(coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor")
    return g.node("Resize", x, None, None, list(out.shape), **more)


def _convolution(g: OnnxGraph, out: Any, *args: Any) -> Any:
    x, weight, bias, stride, padding, dilation, is_transposed, more, groups = args
    rank = out.dim() - 2
    stride, padding, dilation, more = (_each(v, rank) for v in (stride, padding, dilation, more))
    places: dict[str, Any] = dict(strides=stride, pads=padding * 2, dilations=dilation, group=groups)
    if is_transposed:
        return g.node("ConvTranspose", x, weight, bias, output_padding=more, **places)
    return g.node("Conv", x, weight, bias, **places)


def _ends(g: OnnxGraph, out: Any, x: Any, size: Any, stride: Any, pad: Any, dilation: Any) -> list[int]:
    """The padding behind each dimension, which is larger where the mode ``ceil`` has a window that begins inside and
    ends beyond the padding.
    """
    sizes: list[int] = list(g.like[x].shape[2:])
    ends = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(out.shape[2:], stride, dilation, size, strict=True)]
    return [int(max(p, end - n - p)) for end, n, p in zip(ends, sizes, pad, strict=True)]


def _mean_pool(
    g: OnnxGraph,
    out: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    pad: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Padding that counts is added to the operand, since what lies beyond it does not count."""
    size, stride, pad = (_each(v, out.dim() - 2) for v in (size, stride or size, pad))
    ends = _ends(g, out, x, size, stride, pad, [1] * len(size))
    places: dict[str, Any] = dict(kernel_shape=size, strides=stride)
    if not count_include_pad or not any(pad):
        return g.node("AveragePool", x, pads=pad + ends, count_include_pad=0, **places)
    if pad == ends:
        return g.node("AveragePool", x, pads=pad + ends, count_include_pad=1, **places)
    padded = g.node("Pad", x, [0, 0, *pad] * 2, 0)
    more = [end - p for end, p in zip(ends, pad, strict=True)]
    return g.node("AveragePool", padded, pads=[0] * len(pad) + more, count_include_pad=0, **places)


def _max_pool(
    g: OnnxGraph,
    out: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    pad: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> Any:
    """A window with a NaN gives NaN, which ONNX Runtime ignores unless it comes first: the NaNs are pooled as well. The
    indices of ONNX count all images and channels; those of PyTorch count one plane.
    """
    rank = g.like[x].dim() - 2
    size, stride, pad, dilation = (_each(v, rank) for v in (size, stride or size, pad, dilation))
    pads = pad + _ends(g, out[0], x, size, stride, pad, dilation)
    places: dict[str, Any] = dict(kernel_shape=size, strides=stride, pads=pads, dilations=dilation)
    nans = g.cast(g.node("IsNaN", x), g.dtypes[x])
    has_nan = g.node("Greater", g.node("MaxPool", nans, **places), 0)
    plane = torch.tensor(g.like[x].shape[2:].numel())
    at = [g.node("Mod", g.node_of("MaxPool", 2, each, **places)[1], plane) for each in (nans, x)]
    return select(g, has_nan, math.nan, g.node("MaxPool", x, **places)), select(g, has_nan, *at)
