"""Graph modules that write and compile their Python when they first run. Most modules of a compilation never do."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule


def lazy_module(root: torch.nn.Module | Mapping[str, object], graph: fx.Graph, name: str) -> fx.GraphModule:
    """A module of ``graph`` with the attributes of ``root`` that the graph uses, as ``fx.GraphModule`` makes it, and
    with a copy of the ``meta`` of ``root`` if that is a graph module. ``name`` is that of its class.
    """
    module = _LazyGraphModule(root if isinstance(root, torch.nn.Module) else dict(root), graph, class_name=name)
    if isinstance(root, fx.GraphModule):
        module.meta = dict(root.meta)
    return module
