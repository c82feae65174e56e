"""Reading and writing elements at places that are data, as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from keel import Call
from keel_onnxruntime.onnx_values import ANY, NUMBERS, REAL, WIDE, Value, computed_in
from keel_onnxruntime.rows import Row, expand, row

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

MIXED: dict[str, Any] = {"one_dtype": False}
ADDED = REAL | WIDE
"""The dtypes that are added up at places."""
REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def rows() -> Iterator[Row]:
    yield row("embedding", ANY, lambda g, out, x, i, *_: g.node("Gather", x, i), optional=("padding_idx",), **MIXED)
    yield row("index_select", ANY, _index_select, when=_of_vector, **MIXED)
    yield row("gather", ANY, _gathered, **MIXED)
    yield row("scatter.src", ANY, partial(_scattered, "none"), when=_places_taken, **MIXED)
    yield row("scatter.value", ANY, partial(_scattered, "none"), when=_places_taken, **MIXED)
    yield row("scatter_add", NUMBERS, partial(_scattered, "add"), ADDED, when=_places_taken, **MIXED)
    yield row(
        "scatter_reduce.two", NUMBERS, _reduced, ADDED, when=_known_reduction, optional=("include_self",), **MIXED
    )
    yield row("index.Tensor _unsafe_index.Tensor", ANY, _index, when=_with_indices, **MIXED)
    yield row("index_put _unsafe_index_put", ANY, _index_put, when=_writes, optional=("accumulate",), **MIXED)
    yield row("nonzero_static", ANY, _nonzero, ranks=(1, 8), optional=("fill_value",))


def _of_vector(call: Call) -> str | None:
    takes = call.args[0].rank > 0 and call.args[2].rank == 1
    return None if takes else f"onnxruntime takes {call.name} of tensors with dimensions, by a vector."


def _places_taken(call: Call) -> str | None:
    x, index = call.args[0], call.args[2]
    value = call.args[3]
    if index.dtype not in WIDE or (hasattr(value, "dtype") and value.dtype != x.dtype):
        return f"onnxruntime takes {call.name} of tensors of one dtype, by integers."
    return None if x.rank else f"onnxruntime takes {call.name} of tensors with dimensions."


def _known_reduction(call: Call) -> str | None:
    values = dict(zip(("self", "dim", "index", "src", "reduce", "include_self"), call.args, strict=False)) | dict(
        call.kwargs
    )
    if values["reduce"] not in REDUCTIONS or not values.get("include_self", True):
        return f"onnxruntime takes {call.name} that adds, multiplies or compares, the operand's elements included."
    if values["reduce"] in ("amax", "amin") and values["self"].dtype.is_floating_point:
        return f"onnxruntime has no {call.name} that gives the largest or smallest float: ONNX Runtime ignores NaN."
    return _places_taken(call)


def _with_indices(call: Call) -> str | None:
    takes = all(index is None or index.dtype in WIDE for index in call.args[1])
    return None if takes else f"onnxruntime takes {call.name} with integer indices, not masks."


def _writes(call: Call) -> str | None:
    values = dict(zip(("self", "indices", "values", "accumulate"), call.args, strict=False)) | dict(call.kwargs)
    if values["values"].dtype != values["self"].dtype:
        return f"onnxruntime takes {call.name} of values of the tensor's dtype."
    if values.get("accumulate") and values["self"].dtype == torch.bool:
        return f"onnxruntime has no {call.name} that accumulates bools."
    return _with_indices(call)


def _index_select(g: OnnxGraph, out: Any, x: Any, axis: int, index: Any) -> Any:
    return g.node("Gather", x, index, axis=axis)


def _gathered(g: OnnxGraph, out: Any, x: Any, axis: int, index: Any) -> Any:
    """ONNX gathers along a dimension of tensors whose other sizes are equal: the operand is cut to the index."""
    if not g.like[x].dim() or not g.like[index].dim():
        flat = g.node("Gather", g.node("Reshape", x, [-1]), g.node("Reshape", index, [-1]))
        return g.node("Reshape", flat, out.shape)
    return g.node("GatherElements", x, index, axis=axis)


def _scattered(kind: str, g: OnnxGraph, out: Any, x: Any, axis: int, index: Any, source: Any) -> Any:
    """Elements of the source without an index are cut off."""
    if not g.like[index].numel():
        return g.node("Identity", x)
    sizes = list(g.like[index].shape)
    if not isinstance(source, Value):
        source = expand(g, g.value(source, g.dtypes[x]), sizes)
    elif list(g.like[source].shape) != sizes:
        source = g.node("Slice", source, [0] * len(sizes), sizes)
    return g.node("ScatterElements", x, index, source, axis=axis, reduction=kind)


def _reduced(
    g: OnnxGraph, out: Any, x: Any, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    return _scattered(REDUCTIONS[reduce], g, out, x, axis, index, source)


class _Places:
    """The places that indices name: which dimensions they count along, in which order ``GatherND`` and ``ScatterND``
    have the dimensions of the operand, and where the dimensions of the indices are in the result.
    """

    def __init__(self, g: OnnxGraph, x: Any, indices: Sequence[Any]) -> None:
        rank = g.like[x].dim()
        indexed = [axis for axis, index in enumerate(indices) if index is not None]
        self.order = [*indexed, *(axis for axis in range(rank) if axis not in indexed)]
        tensors = [g.cast(indices[axis], torch.int64) for axis in indexed]
        shape = torch.broadcast_shapes(*[g.like[index].shape for index in tensors])
        columns = [g.node("Unsqueeze", g.node("Expand", index, list(shape)), [-1]) for index in tensors]
        self.places = g.node("Concat", *columns, axis=-1)
        adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))
        first, broadcast, rest = (indexed[0] if adjacent else 0), len(shape), rank - len(indexed)
        ahead = range(broadcast, broadcast + first)
        self.result = [*ahead, *range(broadcast), *range(broadcast + first, broadcast + rest)]


def _transposed(g: OnnxGraph, x: Any, order: Sequence[int]) -> Any:
    return x if list(order) == sorted(order) else g.node("Transpose", x, perm=list(order))


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


def _index(g: OnnxGraph, out: Any, x: Any, indices: Sequence[Any]) -> Any:
    at = _Places(g, x, indices)
    return _transposed(g, g.node("GatherND", _transposed(g, x, at.order), at.places), at.result)


def _index_put(g: OnnxGraph, out: Any, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Floats of 16 bits are added in float32, and integers in a dtype that wraps in the same way."""
    if not all(g.like[index].numel() for index in indices if index is not None):
        return g.node("Identity", x)
    at, dtype = _Places(g, x, indices), g.dtypes[x]
    operand = _transposed(g, x, at.order)
    sizes = [g.like[x].shape[axis] for axis in at.order]
    shape = torch.broadcast_shapes(*[g.like[i].shape for i in indices if i is not None])
    count = sum(i is not None for i in indices)
    inner = [*shape, *sizes[count:]]
    values = expand(g, values, [inner[axis] for axis in at.result])
    values = _transposed(g, values, _inverse(at.result))
    if accumulate:
        operand, values = (g.cast(each, computed_in(dtype, ADDED)) for each in (operand, values))
    written = g.node("ScatterND", operand, at.places, values, reduction="add" if accumulate else "none")
    return _transposed(g, g.cast(written, dtype), _inverse(at.order))


def _nonzero(g: OnnxGraph, out: Any, x: Any, *, size: int, fill_value: int = -1) -> Any:
    """The places of the elements that are not zero, filled up to a known number of them."""
    places = g.node("Transpose", g.node("NonZero", g.cast(x, torch.bool)), perm=[1, 0])
    filling = g.value(torch.full((size, g.like[x].dim()), fill_value))
    return g.node("Slice", g.node("Concat", places, filling, axis=0), [0], [size], [0])
