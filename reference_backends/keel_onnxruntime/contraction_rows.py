"""Matrix products, softmax, normalizations and attention, as nodes of ONNX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from keel import Call
from keel_onnxruntime.onnx_values import FLOATS, NUMBERS, REAL, SHORT, SINGLE, WIDE
from keel_onnxruntime.rows import Row, expand, row

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
SCALES = ("alpha", "beta")


def rows() -> Iterator[Row]:
    yield row("mm bmm", NUMBERS, _product, REAL | WIDE)
    yield row("addmm", FLOATS, _gemm, REAL, optional=SCALES, when=_scales, nonempty=True)
    yield row("_softmax", FLOATS, partial(_softmax, "Softmax"), REAL, results=FLOATS)
    yield row("_log_softmax", SHORT, partial(_softmax, "LogSoftmax"), SINGLE, results=SHORT)
    yield row("native_layer_norm", SHORT, _layer_norm, SINGLE, nonempty=True)
    yield row("_native_batch_norm_legit_no_training", SHORT, _batch_norm, SINGLE, nonempty=True)
    more: dict[str, Any] = dict(when=_as_many_heads, optional=("attn_mask", "scale"), nonempty=True)
    yield row(ATTENTION, SHORT, _attention, SINGLE, **more)


def _scales(call: Call) -> str | None:
    """Numbers among the attributes of a node have 32 bits."""
    is_wide = call.args[0].dtype == torch.float64 and any(value != 1 for value in call.kwargs.values())
    return f"onnxruntime takes {call.name} of float64 without alpha and beta." if is_wide else None


def _as_many_heads(call: Call) -> str | None:
    takes = call.args[0].shape[:2] == call.args[1].shape[:2]
    return None if takes else f"onnxruntime takes {call.name} with as many heads of keys as of queries."


def _product(g: OnnxGraph, out: Any, x: Any, y: Any) -> Any:
    """Zeros if the dimension that is summed has no elements."""
    return g.node("MatMul", x, y) if g.like[x].numel() else expand(g, g.value(0, out.dtype), out.shape)


def _gemm(g: OnnxGraph, out: Any, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """A bias times 0 is left out, as in PyTorch: NaN in it does not count."""
    return g.node("Gemm", x, y, bias if beta else None, alpha=float(alpha), beta=float(beta))


def _softmax(kind: str, g: OnnxGraph, out: Any, x: Any, axis: int, half_to_float: bool) -> Any:
    if not g.like[x].dim():
        return g.node("Reshape", g.node(kind, g.node("Reshape", x, [1]), axis=0), [])
    return g.node(kind, x, axis=axis)


def _layer_norm(g: OnnxGraph, out: Any, x: Any, shape: Sequence[int], scale: Any, bias: Any, eps: float) -> Any:
    scale = scale or torch.ones(tuple(shape), dtype=g.dtypes[x])
    return g.node_of("LayerNormalization", 3, x, scale, bias, axis=-len(shape), epsilon=eps)


def _batch_norm(
    g: OnnxGraph, out: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any, _: float, eps: float
) -> Any:
    one, zero = (torch.full(out[0].shape[1:2], number, dtype=g.dtypes[x]) for number in (1, 0))
    return g.node("BatchNormalization", x, scale or one, bias or zero, mean, var, epsilon=eps), "", ""


def _attention(g: OnnxGraph, out: Any, q: Any, k: Any, v: Any, *_: Any, **more: Any) -> Any:
    """Softmax of the scaled and masked scores, and the logarithm of its sum. A query that sees no key gives 0."""
    scale = g.like[q].shape[-1] ** -0.5 if more.get("scale") is None else more["scale"]
    scores = g.node("MatMul", g.node("Mul", q, scale), g.node("Transpose", k, perm=[0, 1, 3, 2]))
    if mask := more.get("attn_mask"):
        scores = g.node("Add", scores, mask)
    results = g.node("Softmax", scores, axis=-1), g.node("ReduceLogSumExp", scores, [-1])
    if mask:
        hidden = g.cast(g.node("Equal", scores, -math.inf), torch.int32)
        blind = g.cast(g.node("ReduceMin", hidden, [-1]), torch.bool)
        zero = g.value(0, g.dtypes[scores])
        results = g.node("Where", blind, zero, results[0]), g.node("Where", blind, zero, results[1])
    return g.node("MatMul", results[0], v), g.node("Squeeze", results[1], [-1])
