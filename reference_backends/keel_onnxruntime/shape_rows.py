"""Views, and operators that move elements, as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from keel import Call
from keel_onnxruntime.onnx_values import ANY, BOOL, NUMBERS, REAL, WIDE
from keel_onnxruntime.rows import Row, expand, row

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

RESHAPES = "view _unsafe_view reshape unsqueeze squeeze squeeze.dim squeeze.dims clone alias detach lift_fresh"
END = 2**63 - 1


def rows() -> Iterator[Row]:
    yield row(RESHAPES, ANY, lambda g, out, x, *_, **__: _reshaped(g, x, out.shape), optional=("memory_format",))
    yield row("lift_fresh_copy", ANY, lambda g, out, x: _reshaped(g, x, out.shape))
    yield row("expand", ANY, lambda g, out, x, *_, **__: expand(g, x, out.shape), optional=("implicit",))
    yield row("repeat", ANY, _repeated)
    yield row("permute", ANY, lambda g, out, x, axes: _permuted(g, x, axes))
    yield row("t transpose.int", ANY, _transposed)
    yield row("slice.Tensor", ANY, _slice, optional=("dim", "start", "end", "step"))
    yield row("select.int", ANY, lambda g, out, x, axis, i: g.node("Gather", x, torch.tensor(i), axis=axis))
    yield row("split.Tensor split_with_sizes", ANY, _split, optional=("dim",))
    yield row("unbind.int", ANY, _unbound, optional=("dim",))
    yield row("diagonal", ANY, _diagonal, optional=("offset", "dim1", "dim2"))
    yield row("unfold", ANY, _windows, ranks=(1, 8))
    yield row(
        "view.dtype", NUMBERS, lambda g, out, x, _: g.cast(x, out.dtype, "BitCast"), results=NUMBERS, when=_same_width
    )
    yield row("cat", ANY, _joined, ANY, optional=("dim",), one_dtype=False)
    yield row("stack", ANY, _stacked, optional=("dim",))
    yield row("flip", ANY, _flipped)
    yield row("roll", ANY, _rolled, optional=("dims",))
    yield row("constant_pad_nd", ANY, _padded, REAL | WIDE | {torch.int8, torch.uint8} | BOOL, optional=("value",))
    for rank in (1, 2, 3):
        for name, mode in (("reflection", "reflect"), ("replication", "edge")):
            native = REAL | WIDE | {torch.int8, torch.uint8}
            yield row(f"{name}_pad{rank}d", NUMBERS, _padded_by(mode), native, when=_outwards)
    yield row("slice_scatter", ANY, _slice_scatter, optional=("dim", "start", "end", "step"))
    yield row("tril", ANY, _triangle(0), REAL | WIDE | BOOL, optional=("diagonal",))
    yield row("triu", ANY, _triangle(1), REAL | WIDE | BOOL, optional=("diagonal",))


def _same_width(call: Call) -> str | None:
    wide = call.args[0].dtype.itemsize == call.out[0].dtype.itemsize  # type: ignore[union-attr]
    return (
        None if wide else f"onnxruntime takes {call.name} to a dtype of the same width: ONNX casts no bits to others."
    )


def _outwards(call: Call) -> str | None:
    takes = all(pad >= 0 for pad in call.args[1])
    return None if takes else f"onnxruntime takes {call.name} of pads that are not negative."


def _reshaped(g: OnnxGraph, x: Any, sizes: Sequence[int]) -> Any:
    return g.node("Reshape", x, list(sizes), allowzero=1)


def _repeated(g: OnnxGraph, out: Any, x: Any, times: Sequence[int]) -> Any:
    """As an expansion of dimensions of size 1, one beside each: ONNX Runtime tiles few dtypes."""
    sizes = [1] * (len(times) - g.like[x].dim()) + list(g.like[x].shape)
    spread = [size for each in sizes for size in (1, each)]
    wide = [size for pair in zip(times, sizes, strict=True) for size in pair]
    return _reshaped(g, expand(g, _reshaped(g, x, spread), wide), out.shape)


def _permuted(g: OnnxGraph, x: Any, axes: Sequence[int]) -> Any:
    return g.node("Transpose", x, perm=[a % len(axes) for a in axes]) if axes else g.node("Identity", x)


def _transposed(g: OnnxGraph, out: Any, x: Any, a: int = 0, b: int = -1) -> Any:
    axes = list(range(out.dim()))
    if axes:
        axes[a], axes[b] = axes[b], axes[a]
    return _permuted(g, x, axes)


def _slice(g: OnnxGraph, out: Any, x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return g.node("Slice", x, [start or 0], [END if end is None else end], [axis], [step])


def _split(g: OnnxGraph, out: Any, x: Any, sizes: Any, axis: int = 0) -> Any:
    return g.node_of("Split", len(out), x, [each.shape[axis] for each in out], axis=axis)


def _unbound(g: OnnxGraph, out: Any, x: Any, axis: int = 0) -> Any:
    return [g.node("Gather", x, torch.tensor(i), axis=axis) for i in range(len(out))]


def _diagonal(g: OnnxGraph, out: Any, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The elements at pairs of places along two dimensions, which are put in front."""
    rank, size = g.like[x].dim(), out.shape[-1]
    first, second = dim1 % rank, dim2 % rank
    ahead = _permuted(g, x, [first, second, *(a for a in range(rank) if a not in (first, second))])
    places = torch.arange(size)[:, None] + torch.tensor([max(-offset, 0), max(offset, 0)])
    return _permuted(g, g.node("GatherND", ahead, places), [*range(1, rank - 1), 0])


def _windows(g: OnnxGraph, out: Any, x: Any, dim: int, size: int, step: int) -> Any:
    rank = g.like[x].dim()
    dim %= rank
    places = torch.arange(out.shape[dim])[:, None] * step + torch.arange(size)
    axes = [a for a in range(rank + 1) if a != dim + 1]
    return _permuted(g, g.node("Gather", x, places, axis=dim), [*axes, dim + 1])


def _joined(g: OnnxGraph, out: Any, tensors: Sequence[Any], axis: int = 0) -> Any:
    """Tensors without elements are left out, also those of another rank, which PyTorch allows."""
    return g.node("Concat", *[g.cast(x, out.dtype) for x in tensors if g.like[x].numel()], axis=axis)


def _stacked(g: OnnxGraph, out: Any, tensors: Sequence[Any], axis: int = 0) -> Any:
    return g.node("Concat", *[g.node("Unsqueeze", x, [axis]) for x in tensors], axis=axis)


def _flipped(g: OnnxGraph, out: Any, x: Any, axes: Sequence[int]) -> Any:
    ends, count = [-1 - END], len(axes)
    return g.node("Slice", x, [-1] * count, ends * count, list(axes), [-1] * count) if axes else g.node("Identity", x)


def _rolled(g: OnnxGraph, out: Any, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    sizes = list(out.shape) if dims else [out.numel()]
    x = x if dims else _reshaped(g, x, [-1])
    for shift, axis in zip(shifts, dims or [0], strict=True):
        if cut := -shift % sizes[axis]:
            ends = g.node("Slice", x, [cut], [END], [axis]), g.node("Slice", x, [0], [cut], [axis])
            x = g.node("Concat", *ends, axis=axis)
    return _reshaped(g, x, out.shape)


def _pads(g: OnnxGraph, x: Any, pads: Sequence[int]) -> list[int]:
    """Those of ONNX: before each dimension, then behind each; PyTorch's are pairs, of the last dimension first."""
    before, behind = list(pads[::2])[::-1], list(pads[1::2])[::-1]
    rest = [0] * (g.like[x].dim() - len(before))
    return [*rest, *before, *rest, *behind]


def _padded(g: OnnxGraph, out: Any, x: Any, pads: Sequence[int], value: Any = 0) -> Any:
    """A dimension is cut first where its padding is negative. The value is rounded to the dtype of the result."""
    rank, every = g.like[x].dim(), _pads(g, x, pads)
    if not g.like[x].numel():
        return expand(g, g.value(torch.tensor(value).to(out.dtype)), out.shape)
    starts = [max(-pad, 0) for pad in every[:rank]]
    ends = [size - max(-pad, 0) for size, pad in zip(g.like[x].shape, every[rank:], strict=True)]
    if any(pad < 0 for pad in every):
        x = g.node("Slice", x, starts, ends)
    number = g.cast(g.value(torch.tensor(value).to(out.dtype)), g.dtypes[x])
    return g.node("Pad", x, [max(pad, 0) for pad in every], number)


def _padded_by(mode: str) -> Any:
    return lambda g, out, x, pads: g.node("Pad", x, _pads(g, x, pads), mode=mode)


def _slice_scatter(
    g: OnnxGraph, out: Any, x: Any, source: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """Rows are written at known places along a dimension, which is put in front."""
    rank = g.like[x].dim()
    places = torch.tensor(range(g.like[x].shape[axis])[slice(start, end, step)], dtype=torch.int64)
    order = [axis % rank, *(a for a in range(rank) if a != axis % rank)]
    written = g.node("ScatterND", _permuted(g, x, order), places[:, None], _permuted(g, source, order))
    return _permuted(g, written, [order.index(a) for a in range(rank)])


def _triangle(upper: int) -> Any:
    return lambda g, out, x, k=0: g.node("Trilu", x, torch.tensor(k), upper=upper)
