"""Asserts that ``squeeze`` keeps the dimensions that its type has.

``x[mask].squeeze()`` has no dimensions if ``mask`` has one true element, and one dimension otherwise. The rank of a
compiled tensor is fixed, and PyTorch traces the second case. A run in which the data-dependent size is 1 must therefore
raise an error, and not return a tensor of the wrong shape.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from keel.torch_adapter.node_origin import origin_of
from keel.torch_adapter.sympy_expressions import expression, late

aten = torch.ops.aten
_SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
_MESSAGE = (
    "squeeze() of a tensor of {shape}: only a run tells the size of dimension {dim}, and it is 1 in this one. "
    "Compiled code keeps the dimension, where eager PyTorch drops it. Use reshape(), index the dimension, or "
    "compile without torch._dynamo.config.capture_dynamic_output_shape_ops."
)


def assert_kept(gm: fx.GraphModule) -> None:
    """Changes ``gm`` and the graphs in it. Each dimension that a ``squeeze`` keeps because its size is unknown gets an
    assertion that its size is not 1. The error is a RuntimeError.
    """
    for graph in (m.graph for m in gm.modules() if isinstance(m, fx.GraphModule)):
        for node in (n for target in _SQUEEZES for n in graph.find_nodes(op="call_function", target=target)):
            for dim, size in _unsqueezed_dims(node):
                _assert_other_than_one(graph, node, dim, size)


def _unsqueezed_dims(node: fx.Node) -> Iterator[tuple[int, torch.SymInt]]:
    """The dimensions, with their sizes, that a call should drop if their size is 1, and keeps because the size is
    unknown.
    """
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    named: Any = node.args[1] if len(node.args) > 1 else range(value.dim())
    dims: Iterable[int] = [named] if isinstance(named, int) else named
    for dim in sorted({d % value.dim() for d in dims} if value.dim() else ()):
        size = value.shape[dim]
        if isinstance(size, torch.SymInt) and late(expression(size)) and not statically_known_true(size != 1):
            yield dim, size


def _assert_other_than_one(graph: fx.Graph, node: fx.Node, dim: int, size: torch.SymInt) -> None:
    message = _MESSAGE.format(shape=list(node.args[0].meta["val"].shape), dim=dim)  # type: ignore[union-attr]
    with graph.inserting_before(node):
        read = graph.call_function(aten.sym_size.int, (node.args[0], dim))
        test = graph.call_function(operator.ne, (read, 1))
        made = graph.call_function(aten._assert_scalar.default, (test, message))
    for each, value in ((read, size), (test, size != 1), (made, None)):
        each.meta = origin_of(node) | {"val": value}
