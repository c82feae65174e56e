"""Where a node comes from: the metadata that PyTorch gives the nodes of a trace."""

from __future__ import annotations

from typing import Any

from torch import fx

_KEYS = (
    "stack_trace",
    "nn_module_stack",
    "fwd_nn_module_stack",  # of a backward call: the modules of the forward call
    "source_fn_stack",
    "fwd_source_fn_stack",
    "seq_nr",
    "partitioner_tag",
    "original_aten",
    "from_node",
    "custom",
)


def origin_of(node: fx.Node) -> dict[str, Any]:
    """The metadata that a node inherits if it is computed in the place of ``node``, or for it."""
    return {key: node.meta[key] for key in _KEYS if key in node.meta}
