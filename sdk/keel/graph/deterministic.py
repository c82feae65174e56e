"""Fills uninitialized memory as eager PyTorch does under ``torch.use_deterministic_algorithms``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor, fx

from keel.graph.decompose import decompose_call
from keel.types import leaves

aten = torch.ops.aten
Op = Callable[..., Any]


def is_filled() -> bool:
    """True if eager PyTorch fills uninitialized memory: deterministic algorithms are on, and filling is not
    turned off.
    """
    filled = getattr(torch.utils.deterministic, "fill_uninitialized_memory")  # noqa: B009  (a property of the module)
    return torch.are_deterministic_algorithms_enabled() and bool(filled)


def fill_fresh_memory(gm: fx.GraphModule, mode: Any) -> None:
    """Changes the graph in place so that uninitialized memory gets the value with which eager PyTorch fills it.
    ``mode`` is the graph's fake mode.
    """
    fresh = [n for n in gm.graph.nodes if n.target in _FRESH]
    for node in fresh:
        parts = decompose_call(node, partial(_FRESH[node.target], node.target), mode)
        new = _inlined(node, parts)
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
    if fresh:
        gm.recompile()


def filling(dtype: torch.dtype) -> float | int | bool:
    """The value with which uninitialized memory of a dtype is filled: NaN, the largest integer, or True."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def _fresh(op: Op, *args: Any, **kwargs: Any) -> Tensor:
    memory = op(*args, **kwargs)
    filled: Tensor = aten.fill.Scalar(memory, filling(memory.dtype))
    return filled


def _grown(op: Op, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Fills the new elements of a resized operand, which are behind the old ones. Layouts other than row-major are not
    filled.
    """
    memory: Tensor = op(x, *args, **kwargs)
    if not memory.is_contiguous():
        return memory
    old = aten.arange.default(memory.numel(), device=x.device) < x.numel()
    filled: Tensor = aten.where.self(old.view(memory.shape), memory, aten.full_like.default(memory, filling(x.dtype)))
    return filled


_FRESH: dict[Any, Callable[..., Tensor]] = {
    aten.empty.memory_format: _fresh,
    aten.empty_like.default: _fresh,
    aten.empty_permuted.default: _fresh,
    aten.empty_strided.default: _fresh,
    aten.new_empty.default: _fresh,
    aten.new_empty_strided.default: _fresh,
    aten.resize.default: _grown,
    aten.resize_as.default: _grown,
}


def _inlined(node: fx.Node, parts: fx.Graph) -> fx.Node:
    """Inserts the nodes of ``parts``, which take the arguments of ``node``, before ``node``. Returns their result."""
    arguments = [a for a in leaves((*node.args, *node.kwargs.values())) if isinstance(a, fx.Node)]
    made = dict(zip(parts.find_nodes(op="placeholder"), arguments, strict=True))
    for part in parts.nodes:
        if part.op == "call_function":
            with node.graph.inserting_before(node):
                made[part] = node.graph.node_copy(part, made.__getitem__)
            made[part].meta = {**node.meta, **part.meta}
    result = parts.output_node().args[0]
    assert isinstance(result, tuple) and isinstance(result[0], fx.Node)
    result_node: fx.Node = made[result[0]]
    return result_node
