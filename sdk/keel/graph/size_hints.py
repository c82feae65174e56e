"""Hints for symbolic sizes: the values that they had when the graph was captured."""

from __future__ import annotations

import torch
from torch import fx

from keel.torch_adapter import dim_of, hint_of, hints_of


def typical_sizes(graph: fx.Graph) -> dict[str, int]:
    """Maps each symbol of the graph, and each size and stride of its inputs, to its value while tracing.
    Data-dependent symbols have no entry.
    """
    sizes: dict[str, int] = {}
    for node in graph.find_nodes(op="placeholder"):
        val = node.meta.get("val")
        for size in (*val.shape, *val.stride()) if isinstance(val, torch.Tensor) else (val,):
            if isinstance(size, torch.SymInt):
                sizes = sizes or hints_of(size)
                if (known := hint_of(size)) is not None:
                    sizes.setdefault(str(dim_of(size)), known)
    return sizes
