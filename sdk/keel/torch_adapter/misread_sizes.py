"""Puts symbolic sizes back where PyTorch records pointers in their place.

``rms_norm`` on CUDA hands its symbolic ``normalized_shape`` to an operator that takes numbers, without a conversion.
What the graph then has is the bits of ``c10::SymInt``, which is a pointer with a tag: a number below -2**62.
Source: ``rms_norm_symint`` in aten/src/ATen/native/layer_norm.cpp and ``SymInt::MAX_UNREPRESENTABLE_INT`` in
c10/core/SymInt.h, PyTorch 2.11 to 2.15.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from keel.errors import KeelError
from keel.torch_adapter.node_origin import origin_of

aten = torch.ops.aten
_INPUT_OF_SHAPE = {"aten._fused_rms_norm.default": 0, "aten._fused_rms_norm_backward.default": 1}
"""The argument whose last sizes are ``normalized_shape``, by operator; ``normalized_shape`` is the next argument."""
_LARGEST_POINTER = -(2**62)


def restore_sizes(gm: fx.GraphModule) -> None:
    """Changes the graph in place. Raises KeelError[bad-graph] for an operator whose sizes cannot be told from its
    other arguments.
    """
    for node in list(gm.graph.nodes):
        if not isinstance(node.target, OpOverload) or not any(map(_misread, node.args)):
            continue
        if (at := _INPUT_OF_SHAPE.get(str(node.target))) is None:
            raise _unknown(node)
        x, shape = node.args[at : at + 2]
        sizes = [_size(node, x, d - len(shape)) for d in range(len(shape))]
        node.args = (*node.args[: at + 1], sizes, *node.args[at + 2 :])


def _misread(argument: Any) -> bool:
    return isinstance(argument, list | tuple) and any(isinstance(n, int) and n <= _LARGEST_POINTER for n in argument)


def _size(node: fx.Node, x: fx.Node, dim: int) -> Any:
    """The size of ``x`` in a dimension, counted from the last: a number, or a node before ``node`` that reads it."""
    if isinstance(size := x.meta["val"].shape[dim], int):
        return size
    with node.graph.inserting_before(node):
        read = node.graph.call_function(aten.sym_size.int, (x, x.meta["val"].dim() + dim))
    read.meta = origin_of(node) | {"val": size}
    return read


def _unknown(node: fx.Node) -> KeelError:
    last = (node.meta.get("stack_trace") or "").strip().splitlines()[-2:]
    return KeelError(
        "bad-graph",
        f"PyTorch has recorded a pointer in place of a symbolic size of {node.target}.",
        {"PyTorch": f"The arguments are {node.args}."},
        " ".join(line.strip() for line in last) or None,
        "Compile with dynamic=False, or mark the sizes of this call as static.",
    )
