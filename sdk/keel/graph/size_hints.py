"""What symbolic sizes count as where somebody has to guess: the values that they had when the graph was captured."""

from __future__ import annotations

import torch
from torch import fx

from keel.torch_adapter import dim_of, hint_of


def typical_sizes(graph: fx.Graph) -> dict[str, int]:
    """By symbol, what sizes of the graph's inputs were while tracing; those that only a run tells have no entry."""
    found: dict[str, int] = {}
    for node in graph.find_nodes(op="placeholder"):
        val = node.meta.get("val")
        for size in (*val.shape, *val.stride()) if isinstance(val, torch.Tensor) else (val,):
            if isinstance(size, torch.SymInt) and (known := hint_of(size)) is not None:
                found.setdefault(str(dim_of(size)), known)
    return found
