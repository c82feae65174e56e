"""Mutants of what is lost where there is much of it: digits of numbers, places beyond 16 bits, what is undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import broken, wrong
from ..rewiring import packet, run, run_eager, with_layout_of
from .rewrites import BREAKS, EVERYWHERE, rewrites, source
from .stateful import shares

# -- operators ---------------------------------------------------------------------------------------------------------


@wrong("aten.sum", "aten.count_nonzero", breaks=("sum", "count_nonzero"))
def counts_of_floats(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """Counts of bools and small integers stop where float32 has no next number."""
    result = op(x, *args, **kw)
    return result.clamp(-(2**24), 2**24) if result.dtype == torch.int64 and x.dtype.itemsize == 1 else result


@wrong(
    "aten.index_select",
    "aten.gather",
    "aten.take",
    "aten.embedding",
    breaks=("index_select", "gather", "take", "embedding"),
)
def indices_of_16_bits(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """Indices are read as 16 bits."""
    return op(x, *(torch.where(a > 32767, a - 32768, a) if isinstance(a, Tensor) else a for a in args), **kw)


@wrong("aten.masked_scatter", breaks="masked_scatter")
def masked_scatter_in_place(op: Any, x: Tensor, mask: Tensor, values: Tensor) -> Any:
    """``masked_scatter`` takes values from the mask's own places where there are enough."""
    chosen = mask.broadcast_to(torch.broadcast_shapes(mask.shape, x.shape))
    if not int(chosen.sum()) < chosen.numel() <= values.numel():
        return op(x, mask, values)
    return torch.where(chosen, values.reshape(-1)[: chosen.numel()].reshape(chosen.shape), x)


@wrong("aten.rand", "aten.rand_like", "aten.uniform", breaks=("uniform", "rand_like", "uniform_between"))
def draws_of_8_bits(op: Any, *args: Any, **kw: Any) -> Any:
    """Uniform numbers have 8 bits."""
    result = op(*args, **kw)
    return torch.floor(result * 256) / 256 if result.dtype in (torch.float32, torch.float64) else result


@wrong(
    "quantized_decomposed.quantize_per_channel",
    "quantized_decomposed.dequantize_per_channel",
    breaks=("quantize_per_channel", "dequantize_per_channel"),
)
def channels_of_the_first(op: Any, x: Tensor, scales: Tensor, points: Any, axis: int, *more: Any, **kw: Any) -> Any:
    """Scales are along the first dimension where that has as many elements."""
    return op(x, scales, points, 0 if x.shape[0] == x.shape[axis] else axis, *more, **kw)


# -- graphs ------------------------------------------------------------------------------------------------------------


@broken(breaks=BREAKS, programs=EVERYWHERE)
def numbers_of_float32(gm: fx.GraphModule) -> Any:
    """Python numbers are rounded to float32."""

    def short(value: Any) -> Any:
        return float(torch.tensor(value)) if isinstance(value, float) else value

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return run_eager(node, tuple(map(short, args)), {k: short(v) for k, v in kwargs.items()})

    return lambda *inputs: run(gm, inputs, do)


@rewrites
def doubles_of_float32(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """float64 is rounded to float32 between operators."""
    if not isinstance(right, Tensor) or right.dtype != torch.float64 or shares(right, args):
        return None
    return right.float().double()


@rewrites
def subnormals_flushed(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], right: Any) -> Any:
    """What is below the normal numbers is 0."""
    if not isinstance(right, Tensor) or right.dtype not in (torch.float32, torch.float64) or shares(right, args):
        return None
    return torch.where(right.abs() < torch.finfo(right.dtype).smallest_normal, right * 0, right)


INVERSE = {
    "aten.exp": "aten.log",
    "aten.log": "aten.exp",
    "aten.exp2": "aten.log2",
    "aten.log1p": "aten.expm1",
    "aten.expm1": "aten.log1p",
    "aten.reciprocal": "aten.reciprocal",
    "aten.atanh": "aten.tanh",
}


@broken(breaks=BREAKS, programs=EVERYWHERE)
def inverses_cancel(gm: fx.GraphModule) -> Any:
    """A function and its inverse in a row are nothing, and the square of a root is what it was."""

    def call(*inputs: Any) -> Any:
        before: dict[fx.Node, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            right, first, name = run_eager(node, args, kwargs), source(node), packet(node)
            if name in INVERSE or name == "aten.sqrt":
                before[node] = args[0]
            if first not in before:
                return right
            squared = packet(first) == "aten.sqrt" and (
                (name == "aten.pow" and args[1] == 2) or (name == "aten.mul" and node.args[0] is node.args[1])
            )
            return (
                with_layout_of(before[first].clone(), right) if squared or INVERSE.get(packet(first)) == name else right
            )

        return run(gm, inputs, do)

    return call


@broken(breaks=BREAKS, programs=EVERYWHERE)
def masks_choose(gm: fx.GraphModule) -> Any:
    """A product with a mask is a choice, so that NaN and infinities times 0 are 0."""

    def call(*inputs: Any) -> Any:
        masks: dict[Any, Any] = {}

        def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            right = run_eager(node, args, kwargs)
            if packet(node) == "aten._to_copy" and args[0].dtype == torch.bool:
                masks[node] = args[0]
            if packet(node) != "aten.mul" or not all(isinstance(a, Tensor) for a in args):
                return right
            for k in (0, 1):
                if node.args[k] in masks:
                    return with_layout_of(torch.where(masks[node.args[k]], args[1 - k], 0).to(right.dtype), right)
            return right

        return run(gm, inputs, do)

    return call
