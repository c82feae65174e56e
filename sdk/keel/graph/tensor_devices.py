"""The devices that a graph uses."""

from __future__ import annotations

import torch
from torch import fx

from keel.types import leaves


def devices_of(graph: fx.Graph) -> frozenset[torch.device]:
    """The devices of a graph's tensors, of a graph of Dynamo's or of a captured one."""
    metas = (node.meta for node in graph.nodes)
    values = (value for meta in metas for value in leaves(meta.get("val", meta.get("example_value"))))
    return frozenset(v.device for v in values if isinstance(v, torch.Tensor))


def device_types(graph: fx.Graph) -> frozenset[str]:
    """Their types: ``cpu``, ``cuda``."""
    return frozenset(device.type for device in devices_of(graph))
