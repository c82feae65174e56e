"""ATen operators as ONNX operators: the calls that are taken, and the nodes that each becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from keel import Call, Rule, Support

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

FLOAT, INDEX, BOOL = (frozenset({dtype}) for dtype in (torch.float32, torch.int64, torch.bool))
NUMBERS = FLOAT | INDEX | {torch.int32}
ANY = NUMBERS | BOOL
FLOATS = "abs neg exp log sqrt reciprocal relu sin cos floor ceil erf gelu"
ORDER = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
RESHAPES = "view _unsafe_view reshape unsqueeze squeeze squeeze.dim squeeze.dims clone alias"
MADE = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking")
POOL = ("stride", "padding", "dilation")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
MIXED: dict[str, Any] = {"one_dtype": False}
EMITTERS: dict[str, Callable[..., Any]] = {}
"""What adds the nodes of a call, by overload: a function of the graph, of the results and of the arguments."""


def row(names: str, dtypes: frozenset[torch.dtype], emit: Callable[..., Any] | str, **limits: Any) -> Rule:
    """A row of the support table, of calls that ``emit`` adds nodes for. It may be the kind of a node."""
    ops = tuple(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names.split())
    EMITTERS.update(dict.fromkeys(ops, (lambda g, out, *xs: g.node(emit, *xs)) if isinstance(emit, str) else emit))
    every: dict[str, Any] = {"static": True, "one_dtype": True, "nonempty": True, "optional": ()}
    return Rule(ops=ops, dtypes=dtypes, **every | limits)


def _rules() -> Iterator[Rule]:
    yield from (row(name, FLOAT, name.capitalize()) for name in FLOATS.split())
    yield from (row(f"{name}.Tensor {name}.Scalar", NUMBERS, name.capitalize()) for name in ("add", "sub", "mul"))
    yield from (row(f"{name}.Tensor {name}.Scalar", NUMBERS, kind) for name, kind in ORDER.items())
    yield row("ne.Tensor ne.Scalar", NUMBERS, lambda g, out, x, y: g.node("Not", g.node("Equal", x, y)))
    yield row("div.Tensor div.Scalar", FLOAT, "Div")
    yield row("pow.Tensor_Scalar", FLOAT, "Pow")
    yield row("maximum", NUMBERS, "Max")
    yield row("minimum", NUMBERS, "Min")
    yield row("rsqrt", FLOAT, lambda g, out, x: g.node("Reciprocal", g.node("Sqrt", x)))
    # ONNX Runtime's own sigmoid is less precise than its exp.
    yield row("sigmoid", FLOAT, lambda g, out, x: g.node("Div", 1, g.node("Add", 1, g.node("Exp", g.node("Neg", x)))))
    yield row("logical_and bitwise_and.Tensor", BOOL, "And")
    yield row("logical_or bitwise_or.Tensor", BOOL, "Or")
    yield row("logical_not bitwise_not", BOOL, "Not")
    yield row("where.self", ANY, _where, when=_chosen, **MIXED)
    yield row("_to_copy", ANY, lambda g, out, x, **_: g.cast(x, out.dtype), optional=MADE, results=ANY)
    yield row(RESHAPES, ANY, lambda g, out, x, *_, **__: g.node("Reshape", x, out.shape), optional=("memory_format",))
    yield row("expand", ANY, lambda g, out, x, *_: g.node("Expand", x, out.shape))
    yield row("permute", ANY, lambda g, out, x, axes: g.node("Transpose", x, perm=[a % len(axes) for a in axes]))
    yield row("t transpose.int", ANY, _transpose, ranks=(1, 8))
    yield row("slice.Tensor", ANY, _slice, optional=("dim", "start", "end", "step"))
    yield row("select.int", ANY, lambda g, out, x, axis, i: g.node("Gather", x, np.array(i), axis=axis))
    yield row("split.Tensor split_with_sizes", ANY, _split, optional=("dim",))
    yield row("cat", ANY, lambda g, out, tensors, axis=0: g.node("Concat", *tensors, axis=axis), optional=("dim",))
    yield row("full scalar_tensor new_full", ANY, partial(_filled, None), optional=MADE, results=ANY)
    yield row("ones new_ones ones_like", ANY, partial(_filled, 1), optional=MADE, results=ANY)
    yield row("zeros new_zeros zeros_like", ANY, partial(_filled, 0), optional=MADE, results=ANY)
    yield row("arange arange.start", INDEX, lambda g, out, *ends, **_: g.value([*range(*ends)]), optional=MADE)
    yield row("embedding", ANY, lambda g, out, x, i, *_: g.node("Gather", x, i), optional=("padding_idx",), **MIXED)
    yield row("index_select", ANY, lambda g, out, x, axis, i: g.node("Gather", x, i, axis=axis), **MIXED)
    yield row("gather", ANY, lambda g, out, x, axis, i: g.node("GatherElements", x, i, axis=axis), **MIXED)
    yield row("index.Tensor", ANY, _index, when=_with_indices, **MIXED)
    yield row("sum.dim_IntList", FLOAT, partial(_reduced, "ReduceSum"), optional=("keepdim",))
    yield row("mean.dim", FLOAT, partial(_reduced, "ReduceMean"), optional=("keepdim",))
    yield row("cumsum", FLOAT | INDEX, lambda g, out, x, axis: g.node("CumSum", x, np.array(axis)), ranks=(1, 8))
    yield row("_softmax", FLOAT, lambda g, out, x, axis, half: g.node("Softmax", x, axis=axis))
    yield row("_log_softmax", FLOAT, lambda g, out, x, axis, half: g.node("LogSoftmax", x, axis=axis))
    yield row("native_layer_norm", FLOAT, _layer_norm)
    yield row("_native_batch_norm_legit_no_training", FLOAT, _batch_norm)
    yield row("mm bmm", FLOAT, "MatMul")
    yield row("addmm", FLOAT, lambda g, out, bias, x, y: g.node("Gemm", x, y, bias))
    yield row("convolution", FLOAT, _convolution, when=_not_transposed)
    yield row("max_pool2d_with_indices", FLOAT, _max_pool, ranks=(4, 4), optional=POOL)
    yield row(ATTENTION, FLOAT, _attention, when=_as_many_heads, optional=("attn_mask", "scale"))


def _chosen(call: Call) -> str | None:
    condition, x, y = (t.dtype for t in call.tensors)
    takes = condition == torch.bool and x == y != torch.bool
    return None if takes else f"onnxruntime takes {call.name} of numbers of one dtype, by a bool tensor."


def _with_indices(call: Call) -> str | None:
    takes = all(index is not None and index.dtype == torch.int64 for index in call.args[1])
    return None if takes else f"onnxruntime takes {call.name} with an int64 index for each of the first dimensions."


def _not_transposed(call: Call) -> str | None:
    return f"onnxruntime takes {call.name} if it is not transposed." if call.args[6] else None


def _as_many_heads(call: Call) -> str | None:
    takes = call.args[0].shape[:2] == call.args[1].shape[:2]
    return None if takes else f"onnxruntime takes {call.name} with as many heads of keys as of queries."


def _where(g: OnnxGraph, out: Any, condition: str, x: str, y: str) -> str:
    """Of bits: ONNX Runtime's own kernel for floats loses the sign of zeros."""
    if out.dtype != torch.float32:
        return g.node("Where", condition, x, y)
    bits = (g.cast(each, torch.int32, "BitCast") for each in (x, y))
    return g.cast(g.node("Where", condition, *bits), torch.float32, "BitCast")


def _transpose(g: OnnxGraph, out: Any, x: str, a: int = 0, b: int = -1) -> str:
    axes = list(range(out.dim()))
    axes[a], axes[b] = axes[b], axes[a]
    return g.node("Transpose", x, perm=axes)


def _slice(g: OnnxGraph, out: Any, x: str, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str:
    return g.node("Slice", x, [start or 0], [2**63 - 1 if end is None else end], [axis], [step])


def _split(g: OnnxGraph, out: Any, x: str, sizes: Any, axis: int = 0) -> list[str]:
    return g.node_of("Split", len(out), x, [each.shape[axis] for each in out], axis=axis)


def _filled(number: Any, g: OnnxGraph, out: Any, *args: Any, **_: Any) -> str:
    """Of ``number``, or of the last argument."""
    return g.node("Expand", g.value(args[-1] if number is None else number, out.dtype), out.shape)


def _index(g: OnnxGraph, out: Any, x: str, indices: Sequence[str]) -> str:
    shape = torch.broadcast_shapes(*[g.like[i].shape for i in indices])
    columns = [g.node("Unsqueeze", g.node("Expand", i, shape), [-1]) for i in indices]
    return g.node("GatherND", x, g.node("Concat", *columns, axis=-1))


def _reduced(kind: str, g: OnnxGraph, out: Any, x: str, axes: Any, keep: bool = False) -> str:
    return g.node(kind, x, axes or [*range(g.like[x].dim())], keepdims=int(keep), noop_with_empty_axes=1)


def _layer_norm(g: OnnxGraph, out: Any, x: str, shape: Sequence[int], scale: Any, bias: Any, eps: float) -> list[str]:
    one = np.ones(shape, np.float32)
    return g.node_of("LayerNormalization", 3, x, scale or one, bias, axis=-len(shape), epsilon=eps)


def _batch_norm(
    g: OnnxGraph, out: Any, x: str, scale: Any, bias: Any, mean: str, var: str, _: float, eps: float
) -> Any:
    one, zero = (np.full(out[0].shape[1], number, np.float32) for number in (1, 0))
    return g.node("BatchNormalization", x, scale or one, bias or zero, mean, var, epsilon=eps), "", ""


def _convolution(g: OnnxGraph, out: Any, *args: Any) -> str:
    x, weight, bias, *windows, _, _, groups = args
    stride, padding, dilation = (list(v) * ((out.dim() - 2) // len(v)) for v in windows)
    return g.node("Conv", x, weight, bias, strides=stride, pads=padding * 2, dilations=dilation, group=groups)


def _max_pool(
    g: OnnxGraph, out: Any, x: str, size: Any, stride: Any = (), pad: Any = (0,), dilation: Any = (1,)
) -> Any:
    """The indices of ONNX count all images and channels; those of PyTorch count one plane."""
    size, stride, pad, dilation = (list(v) * (2 // len(v)) for v in (size, stride or size, pad, dilation))
    places: dict[str, Any] = dict(kernel_shape=size, strides=stride, pads=pad * 2, dilations=dilation)
    indices = g.node_of("MaxPool", 2, x, **places)[1]
    return g.node("MaxPool", x, **places), g.node("Mod", indices, np.array(g.like[x].shape[2:].numel()))


def _attention(g: OnnxGraph, out: Any, q: str, k: str, v: str, *_: Any, **more: Any) -> Any:
    """Softmax of the scaled and masked scores, and the logarithm of its sum. A query that sees no key gives 0."""
    scale = g.like[q].shape[-1] ** -0.5 if more.get("scale") is None else more["scale"]
    scores = g.node("MatMul", g.node("Mul", q, scale), g.node("Transpose", k, perm=[0, 1, 3, 2]))
    if mask := more.get("attn_mask"):
        scores = g.node("Add", scores, mask)
    results = g.node("Softmax", scores, axis=-1), g.node("ReduceLogSumExp", scores, [-1])
    if mask:
        hidden = g.cast(g.node("Equal", scores, -np.inf), torch.int32)
        blind = g.cast(g.node("ReduceMin", hidden, [-1]), torch.bool)
        results = g.node("Where", blind, 0.0, results[0]), g.node("Where", blind, 0.0, results[1])
    return g.node("MatMul", results[0], v), g.node("Squeeze", results[1], [-1])


SUPPORT = Support(tuple(_rules()))
