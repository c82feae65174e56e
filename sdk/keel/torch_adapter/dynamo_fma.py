"""Calls of ``prims.fma``, an operator of Inductor's, as calls of ATen operators that compute the same.

From PyTorch 2.13 on Dynamo writes ``addcmul_`` and ``addcdiv_`` with a ``value``, which every Adam calls, and ``add_``
with a tensor ``alpha``, as ``prims.fma(a, b, c)``: a * b + c, rounded once. ``b`` may be a number.
Source: ``TensorVariable.method_addcmul_`` in torch/_dynamo/variables/tensor.py, PyTorch 2.13 to 2.15.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from keel.torch_adapter.recorder import fake_mode_of_value
from keel.torch_adapter.sympy_expressions import tensor_type
from keel.types import TensorType

aten = torch.ops.aten


def replace_fma(gm: fx.GraphModule) -> None:
    """Changes the graph in place. A call stays if the result of the other call would have another type."""
    for node in gm.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target._schema.name == "prims::fma":
            a, b, c = node.args
            is_tensor = isinstance(b, fx.Node) and isinstance(b.meta.get("val"), torch.Tensor)
            call = (aten.addcmul.default, (c, a, b), {}) if is_tensor else (aten.add.Tensor, (c, a), {"alpha": b})
            if tensor_type(node.meta["val"]) == _type_of_call(node, *call):
                node.target, node.args, node.kwargs = call


def _type_of_call(node: fx.Node, target: OpOverload, args: Any, kwargs: Any) -> TensorType | None:
    """The type of the result that a call has under the fake mode of ``node``; None if PyTorch refuses it."""
    mode = fake_mode_of_value(node.meta["val"])
    if mode is None:
        return None
    values, named = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
    try:
        with mode:
            return tensor_type(target(*values, **named))
    except RuntimeError:  # a float times integers
        return None
